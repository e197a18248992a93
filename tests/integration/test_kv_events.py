"""Cache events through the whole program, from publishers as vLLM has them (pyzmq).

The batches are captured ones of vLLM 0.32, byte for byte.
"""

import hashlib
import json
import pathlib
import pickle
import threading

import pytest
import zmq
from support.processes import until
from support.router import Router
from support.wire import Client, Replica

DATA = pathlib.Path(__file__).resolve().parent.parent / "data/vllm/kv-events"
SHA256_CBOR = "sha256_cbor-int64-block32-128blocks.json"
CACHE_CONFIG = (
    b'vllm:num_requests_running{engine="0"} 0\n'
    b'vllm:cache_config_info{block_size="32",num_gpu_blocks="128",enable_prefix_caching="%s"} 1\n'
)


def captured(name):
    return json.loads((DATA / name).read_text())


def batches(name=SHA256_CBOR):
    """(number, payload) of every message of a capture."""
    messages = [event for case in captured(name)["cases"] for event in case["events"]]
    frames = [[bytes.fromhex(frame) for frame in event["frames_hex"]] for event in messages]
    return [(int.from_bytes(number, "big"), payload) for _, number, payload in frames]


class Publisher:
    """PUB and ROUTER sockets as vLLM's publisher has them; counts from 0 whatever is captured."""

    END = (-1).to_bytes(8, "big", signed=True)

    def __init__(self, topic=b"", connect=None, topic_in_replay=True):
        self.topic, self.topic_in_replay = topic, topic_in_replay
        self.kept, self.replays = [], 0
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)
        self.router = self.context.socket(zmq.ROUTER)
        if connect:
            self.socket.connect(connect)
            self.port = 0
        else:
            self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.subscribed = threading.Event()
        self.lock = threading.Lock()
        self.outbox = []
        self.stopping = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stopping:
            if self.socket.poll(2) and self.socket.recv()[:1] == b"\x01":
                self.subscribed.set()
            if self.router.poll(0):
                client, empty, start = self.router.recv_multipart()
                assert empty == b""
                self.replays += 1
                tag = [self.topic] if self.topic_in_replay else []
                for number, payload in self.kept:
                    if number >= int.from_bytes(start, "big"):
                        frames = [client, b"", *tag, number.to_bytes(8, "big"), payload]
                        self.router.send_multipart(frames)
                end = [b""] if self.topic_in_replay else []
                self.router.send_multipart([client, b"", *end, self.END, b""])
            with self.lock:
                outbox, self.outbox = self.outbox, []
            for payload, heard in outbox:
                number = len(self.kept)
                self.kept.append((number, payload))
                if heard:
                    self.socket.send_multipart([self.topic, number.to_bytes(8, "big"), payload])

    def publish(self, payload, heard=True):
        with self.lock:
            self.outbox.append((payload, heard))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()
        self.socket.close(0)
        self.router.close(0)
        self.context.term()


def serve(start, replica, publisher, **kv_events):
    return start(
        Router(
            [replica],
            signals={"interval": "50ms"},
            health={"interval": "50ms"},
            kv_events={"replay_port": publisher.replay_port, **kv_events},
        )
    )


def rank_of(router):
    with Client(router.urls["admin"]) as client:
        ranks = client.get("/v1/replicas").json["replicas"][0]["kv_events"]
    return ranks[0] if ranks else {"trust": "none", "next": 0, "blocks": 0}


def test_a_capture_through_connect_gap_and_replay(start):
    publisher = start(Publisher(topic=b"kv@tiny"))
    replica = start(Replica(models=("tiny",)))
    replica.metrics = CACHE_CONFIG % b"True"
    payloads = [payload for _, payload in batches()]
    for payload in payloads[:5]:
        publisher.publish(payload)  # before the router is there
    router = serve(start, replica, publisher, endpoint_port=publisher.port, topic="kv@")
    until(lambda: rank_of(router)["trust"] == "trusted", what="trusted after the first replay")
    assert rank_of(router)["next"] == 5
    assert publisher.subscribed.wait(10)
    for index, payload in enumerate(payloads[5:], 5):
        publisher.publish(payload, heard=index not in (8, 9))
    until(lambda: rank_of(router)["next"] == len(payloads), what="all batches are applied")
    until(lambda: rank_of(router)["trust"] == "trusted", what="trusted after the gap")
    rank = rank_of(router)
    # After the clearing there are the two blocks of the last request.
    assert (rank["blocks"], rank["block_tokens"], rank["losses"]) == (2, 32, 0)
    assert rank["gaps"] == 1
    assert publisher.replays == 2
    metrics = router.metrics()
    name = f'replica="{replica.url}",rank="0"'
    assert metrics[f'pointsman_kv_events_trust{{{name},trust="trusted"}}'] == 1
    assert metrics[f"pointsman_kv_events_batches_total{{{name}}}"] == len(payloads)
    stored = sum(
        len(event["block_hashes"])
        for case in captured(SHA256_CBOR)["cases"]
        for message in case["events"]
        for event in message["decoded"][1]
        if event["type"] == "BlockStored"
    )
    assert metrics[f'pointsman_kv_events_blocks_total{{{name},event="stored"}}'] == stored
    assert metrics["pointsman_kv_events_stray_messages_total"] == 0


def test_a_capture_through_an_engine_that_connects(start):
    with zmq.Context() as context, context.socket(zmq.SUB) as probe:
        port = probe.bind_to_random_port("tcp://127.0.0.1")
    replica = start(Replica(models=("tiny",)))
    publisher = start(
        Publisher(
            topic=f"kv@{replica.authority}@tiny".encode(),
            connect=f"tcp://127.0.0.1:{port}",
            topic_in_replay=False,
        )
    )
    router = serve(start, replica, publisher, bind=f"tcp://127.0.0.1:{port}")
    assert publisher.subscribed.wait(20)
    payloads = [payload for _, payload in batches("sha256-bytes-block32-default-seed.json")]
    for payload in payloads:
        publisher.publish(payload)
    until(lambda: rank_of(router)["next"] == len(payloads), what="all batches are applied")
    assert rank_of(router)["trust"] == "trusted"
    assert rank_of(router)["blocks"] == 2


def test_an_engine_without_a_prefix_cache_is_not_believed(start):
    publisher = start(Publisher())
    replica = start(Replica(models=("tiny",)))
    replica.metrics = CACHE_CONFIG % b"False"
    router = serve(start, replica, publisher, endpoint_port=publisher.port)
    until(
        lambda: rank_of(router).get("why") == "the engine runs without a prefix cache",
        what="the reason is shown",
    )
    assert rank_of(router)["trust"] == "none"


def cbor(value):
    """Canonical CBOR of what vLLM hashes: byte strings, text, whole numbers, lists and null."""

    def head(major, number):
        for size, code in ((0, None), (1, 24), (2, 25), (4, 26), (8, 27)):
            if size == 0 and number < 24:
                return bytes([major << 5 | number])
            if size and number < 1 << 8 * size:
                return bytes([major << 5 | code]) + number.to_bytes(size, "big")
        raise ValueError(number)

    if value is None:
        return b"\xf6"
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, int):
        return head(0, value)
    return head(4, len(value)) + b"".join(cbor(item) for item in value)


HASHES = {
    SHA256_CBOR: cbor,
    "sha256-bytes-block32-default-seed.json": lambda value: pickle.dumps(value, protocol=5),
}


@pytest.mark.parametrize("name", HASHES)
def test_the_captured_hashes_are_those_of_the_tokens(name):
    """The engine's own hash of every captured block, recomputed: the tokens, parents and salts that
    the events tell are all that is in it."""
    capture = captured(name)
    digests = {}  # as published -> whole digest
    compared = 0

    def published(value):
        return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value

    for case in capture["cases"]:
        for message in case["events"]:
            for event in message["decoded"][1]:
                if event["type"] != "BlockStored":
                    continue
                parent = bytes.fromhex(capture["none_hash"])
                if event["parent_block_hash"] is not None:
                    parent = digests[published(event["parent_block_hash"])]
                size = event["block_size"]
                for index, block in enumerate(event["block_hashes"]):
                    tokens = tuple(event["token_ids"][index * size : (index + 1) * size])
                    extra = (event.get("extra_keys") or [None] * (index + 1))[index]
                    # Published without its tag.
                    extra = extra and tuple(("cache_salt", salt) for salt in extra)
                    text = HASHES[name]((parent, tokens, extra))
                    parent = hashlib.sha256(text).digest()
                    told = published(block)
                    assert told in (parent, int.from_bytes(parent[-8:], "big"))
                    digests[told] = parent
                    compared += 1
    assert compared == capture["recomputed_ok"]
    assert capture["recomputed_bad"] == 0
