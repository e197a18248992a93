"""Cache events of the simulated replica: as vLLM publishes them, and exact for a router."""

import json
import pathlib
import random
import re
import socket

import msgpack
import pytest
import zmq
from support.processes import POINTSMAN, Listening, until
from support.router import Router
from support.wire import Client

DATA = pathlib.Path(__file__).resolve().parent.parent / "data/vllm/kv-events"
END = b"\xff" * 8
BLOCK = 16


def on_loopback(endpoint):
    return "tcp://127.0.0.1:" + endpoint.rsplit(":", 1)[1]


class Simulated(Listening):
    """A replica that publishes, and what it has published (asked for again)."""

    ANY = "tcp://127.0.0.1:*"

    def __init__(self, *flags, speed=50, listen="127.0.0.1:0", events=ANY, replay=ANY):
        words = ["--listen", listen, "--speed", speed, "--kv-events", events, "--kv-replay", replay]
        super().__init__([POINTSMAN, "replica", *words, *flags])
        found = re.findall(r"^cache events (?:again )?on (\S+)$", "\n".join(self.lines), re.M)
        self.events, self.replay = found

    def ports(self):
        events, replay = (int(end.rsplit(":", 1)[1]) for end in (self.events, self.replay))
        return {"url": self.url, "kv_events_port": events, "kv_replay_port": replay}

    def post(self, path, body=None):
        with Client(self.url) as client:
            client.post(path, json.dumps(body).encode() if body else b"")
            answer = client.response()
        assert answer.status == 200, answer.body
        return answer.json

    def complete(self, prompt, max_tokens=1, **more):
        answer = self.post("/v1/completions", {"prompt": prompt, "max_tokens": max_tokens, **more})
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def debug(self):
        with Client(self.url) as client:
            return client.get("/debug/requests").json

    def messages(self, start=0):
        """The frames of each answer to a request for what was missed, without the empty one."""
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(on_loopback(self.replay))
            dealer.send_multipart([b"", start.to_bytes(8, "big")])
            answers = []
            while True:
                assert dealer.poll(20_000), "no answer"
                empty, *frames = dealer.recv_multipart()
                assert empty == b""
                if frames[-2] == END:
                    assert frames[-1] == b"" and all(f == b"" for f in frames[:-2])
                    return answers
                answers.append(frames)

    def batches(self, start=0):
        """(number, events) of each batch."""
        decoded = []
        for *_, number, payload in self.messages(start):
            time, events, rank = msgpack.unpackb(payload)
            assert isinstance(time, float) and rank == 0
            assert msgpack.packb([time, events, rank]) == payload, "not in the shortest form"
            decoded.append((int.from_bytes(number, "big"), events))
        return decoded


def captured_events(layout, hashes):
    """The first captured event of each type in that layout: its fields, and as it was decoded."""
    if layout == "array":
        vectors = json.loads((DATA / "older-layouts-reencoded.json").read_text())["vectors"]
        payloads = [v["payload_hex"] for v in vectors if v["layout"] == "0.20 array"]
    else:
        names = {
            "int": "sha256_cbor-int64-block32-128blocks.json",
            "bytes": "sha256-bytes-block32-default-seed.json",
        }
        cases = json.loads((DATA / names[hashes]).read_text())["cases"]
        payloads = [m["frames_hex"][2] for case in cases for m in case["events"]]
    first = {}
    for payload in payloads:
        _, events, rank = msgpack.unpackb(bytes.fromhex(payload))
        assert rank == 0
        for event in events:
            first.setdefault(event["type"] if layout == "map" else event[0], event)
    return first


def tokens(seed, count):
    return [random.Random(seed * 10_000 + i).randrange(2**17) for i in range(count)]


@pytest.mark.parametrize(
    ("layout", "hashes"), [("map", "int"), ("map", "bytes"), ("array", "int")]
)
def test_the_events_have_the_captured_fields_one_by_one(start, layout, hashes):
    replica = start(
        Simulated("--kv-layout", layout, "--kv-hashes", hashes, "--kv-topic", "kv@a", "--blocks", 12)
    )
    replica.complete(tokens(1, 80), cache_salt="tenant-a")
    replica.complete(tokens(2, 160))  # evicts some of it
    assert replica.post("/reset_prefix_cache") == {"success": True}
    replica.complete(tokens(2, 40))

    ours = {}
    for _, events in replica.batches():
        for event in events:
            ours.setdefault(event["type"] if layout == "map" else event[0], event)
    captured = captured_events(layout, hashes)
    assert ours.keys() == {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
    for kind, event in ours.items():
        if kind not in captured:
            assert hashes == "bytes"  # nothing was evicted in that capture
            continue
        theirs = captured[kind]
        if layout == "map":
            assert list(event) == list(theirs)
            pairs = [(name, event[name], theirs[name]) for name in event]
        else:
            assert len(event) == len(theirs)
            pairs = list(zip(range(len(event)), event, theirs, strict=True))
        for name, value, wanted in pairs:
            assert type(value) is type(wanted), name
            if name == "block_hashes" or (layout == "array" and name == 1):
                assert type(value[0]) is type(wanted[0])
                assert not isinstance(value[0], bytes) or len(value[0]) == len(wanted[0])
            elif isinstance(value, str | None) or name == "group_idx":
                assert value == wanted

    # What it says of the salted prompt, which is all but the hashes.
    names = ("type", "block_hashes", "parent_block_hash", "token_ids", "block_size")
    names += ("lora_id", "medium", "lora_name", "extra_keys", "group_idx")
    stored = ours["BlockStored"]
    stored = stored if layout == "map" else dict(zip(names, stored, strict=True))
    assert len(set(stored["block_hashes"])) == 5
    assert stored["token_ids"] == tokens(1, 80)
    assert stored["block_size"] == BLOCK
    assert stored["extra_keys"] == [["tenant-a"], None, None, None, None]


def test_answers_for_missed_batches_have_the_captured_frames(start):
    capture = json.loads((DATA / "sha256_cbor-int64-block32-128blocks.json").read_text())
    theirs = capture["replay"]["from_seq_26"]["reply_frames_hex"]
    assert [len(frames) for frames in theirs] == [4] * len(theirs)
    assert theirs[-1] == ["", "", END.hex(), ""]
    for layout, frames in (("map", 3), ("array", 2)):
        replica = start(Simulated("--kv-layout", layout, "--kv-topic", "kv@a"))
        for seed in range(4):
            replica.complete(tokens(seed, 20))
        messages = replica.messages(1)
        assert [len(message) for message in messages] == [frames] * 3
        assert [int.from_bytes(message[-2], "big") for message in messages] == [1, 2, 3]
        assert all(message[:-2] == ([b"kv@a"] if layout == "map" else []) for message in messages)
        assert replica.messages(4) == []


def test_subscribers_hear_what_can_be_asked_for_but_what_was_lost(start):
    replica = start(Simulated("--kv-topic", "kv@a"))
    with zmq.Context() as context, context.socket(zmq.SUB) as heard:
        heard.setsockopt(zmq.SUBSCRIBE, b"kv@")
        heard.connect(replica.events)
        seed = iter(range(1_000))

        def hears():
            replica.complete(tokens(next(seed), 20))
            return heard.poll(100)

        until(hears, what="the subscription has arrived")
        while heard.poll(200):
            heard.recv_multipart()
        begun = replica.debug()["kv_batches"]
        replica.complete(tokens(2_000, 20))
        replica.post("/state", {"lose_kv_batches": 2})
        for number in range(3):
            replica.complete(tokens(2_001 + number, 20))
        got = [heard.recv_multipart() for _ in range(2) if heard.poll(20_000)]
    kept = replica.messages(begun)
    assert len(kept) == 4
    assert got == [kept[0], kept[3]]


def test_it_says_what_its_cache_does(start):
    replica = start(Simulated("--blocks", 32))
    prompt = tokens(1, 80)
    replica.complete(prompt)
    assert replica.complete(prompt) == 64  # at least one token is computed: nothing new
    ((_, (first,)),) = replica.batches()
    assert (first["type"], first["token_ids"]) == ("BlockStored", prompt)
    # What decoding fills: 70 tokens have entries after the prompt's 80 (the last is only sampled),
    # which fill four blocks, one after the other.
    replica.complete(prompt, max_tokens=71)
    batches = replica.batches(1)
    assert [number for number, _ in batches] == [1, 2, 3, 4]
    parent = first["block_hashes"][-1]
    for _, (event,) in batches:
        assert event["parent_block_hash"] == parent
        assert len(event["token_ids"]) == BLOCK
        (parent,) = event["block_hashes"]
    assert replica.debug()["kv_blocks"] == 9
    # 32 blocks: 480 tokens need 30 of them, so 7 of the nine go, tails first, and each has its event.
    replica.complete(tokens(2, 480))
    ((_, (*removed, stored)),) = replica.batches(5)
    assert [event["type"] for event in removed] == ["BlockRemoved"] * 7
    held = first["block_hashes"] + [event["block_hashes"][0] for _, (event,) in batches]
    assert [event["block_hashes"] for event in removed] == [[block] for block in held[:1:-1]]
    assert (stored["type"], stored["token_ids"]) == ("BlockStored", tokens(2, 480))
    # An emptied cache is told of by the next batch, before what that stores.
    replica.post("/reset_prefix_cache")
    assert replica.batches(6) == []
    assert replica.complete(tokens(2, 480)) == 0
    ((_, events),) = replica.batches(6)
    assert [event["type"] for event in events] == ["AllBlocksCleared", "BlockStored"]
    assert replica.debug()["kv_blocks"] == 30


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ranks_of(router):
    with Client(router.urls["admin"]) as client:
        replicas = client.get("/v1/replicas").json["replicas"]
    return {replica["url"]: (replica["kv_events"] or [{"trust": "none"}])[0] for replica in replicas}


def wait_trusted(router, replicas):
    def trusted():
        ranks = ranks_of(router)
        return all(
            ranks[replica.url]["trust"] == "trusted"
            and ranks[replica.url]["next"] == replica.debug()["kv_batches"]
            for replica in replicas
        )

    until(trusted, what="all events are applied and trusted")


def test_a_router_with_events_knows_what_is_cached(start, tmp_path):
    """Over evictions, lost batches and a restart: what was expected is what the engine found."""
    # So small that the cache turns over within the time for which the router takes what it has sent
    # to be there (EngineCaches::Options::sent_life), and so slow that events precede their answer by
    # more than a busy machine needs to bring them.
    small = ("--blocks", 160)
    steady = start(Simulated(*small, speed=10))
    # Ports that it can have again; a `*` lets it listen.
    ports = {
        "listen": f"127.0.0.1:{free_port()}",
        "events": f"tcp://*:{free_port()}",
        "replay": f"tcp://*:{free_port()}",
    }
    mortal = start(Simulated(*small, speed=10, **ports))
    path = tmp_path / "decisions.log"
    router = start(
        Router(
            [steady.ports(), mortal.ports()],
            policy="least_work",
            decision_log={"path": str(path), "key": "k"},
            signals={"interval": "50ms"},
            health={"interval": "50ms"},
            kv_events={"replay_timeout": "1s"},
        )
    )
    router.wait_models()
    chance = random.Random(7)
    shared = [tokens(seed, 320) for seed in range(4)]
    histories = [shared[n % 4] + tokens(100 + n, chance.randrange(10, 200)) for n in range(24)]

    asked = 0

    def ask(count):
        nonlocal asked
        with router.client() as client:
            for _ in range(count):
                asked += 1
                n = chance.randrange(len(histories))
                if len(histories[n]) > 700:
                    histories[n] = shared[n % 4] + tokens(chance.randrange(10**6), 50)
                histories[n] = histories[n] + tokens(chance.randrange(10**6), chance.randrange(1, 60))
                body = {"prompt": histories[n], "max_tokens": chance.randrange(10, 40)}
                client.post("/v1/completions", json.dumps({"model": "sim", **body}).encode())
                assert client.response().status == 200

    wait_trusted(router, [steady, mortal])
    ask(120)
    wait_trusted(router, [steady, mortal])
    first_after_loss = asked
    for replica in (steady, mortal):  # the next batches of both are lost on the way
        replica.post("/state", {"lose_kv_batches": 2})

    def both_have_gaps():
        ask(5)
        return {rank["gaps"] for rank in ranks_of(router).values()} == {1}

    until(both_have_gaps, what="both have gaps")
    wait_trusted(router, [steady, mortal])
    first_after_replay = asked
    ask(60)
    mortal.kill()
    until(
        lambda: ranks_of(router)[mortal.url]["trust"] != "trusted",
        what="a replica that is gone is not believed",
    )
    ask(20)
    mortal = start(Simulated(*small, speed=10, **ports))
    ask(1)
    wait_trusted(router, [steady, mortal])
    ask(100)
    wait_trusted(router, [steady, mortal])
    metrics = router.metrics()
    router.stop()

    assert all(replica.debug()["kv_blocks"] <= 160 for replica in (steady, mortal))
    evicted = sum(
        event["type"] == "BlockRemoved"
        for replica in (steady, mortal)
        for _, events in replica.batches()
        for event in events
    )
    assert evicted > 200
    _, *lines = map(json.loads, path.read_text().splitlines())
    assert len(lines) > 300
    assert sum(line["cached_tokens"] > 0 for line in lines) > 200
    # Between a loss and the next batch nobody can know of it.
    judged = lines[:first_after_loss] + lines[first_after_replay:]
    misses = [abs(line.get("predicted_cached", 0) - line["cached_tokens"]) for line in judged]
    wrong = sum(miss > BLOCK for miss in misses)
    assert wrong <= len(judged) / 100, f"{wrong} of {len(judged)} wrong by more than a block"
    answers = {
        source: metrics[f'pointsman_cached_tokens_answers_total{{from="{source}"}}']
        for source in ("events", "sent")
    }
    assert answers["events"] > 0.9 * len(lines)
