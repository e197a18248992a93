"""Streams pass as they come, end as they end, and never pretend."""

import json
import pathlib
import re
import threading

import pytest

from support.processes import until
from support.router import Router
from support.wire import DONE, EVENT_STREAM, Gone, Replica, chat_body, chunk, event


def pieces_of(body, size):
    return [body[i : i + size] for i in range(0, len(body), size)]


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("comments", "/v1/chat/completions"),
        ("meta-only", "/v1/chat/completions"),
        ("named-events", "/v1/messages"),
    ],
    ids=["D11", "D12", "D14"],
)
def test_a_stream_comes_as_it_was_sent(world, cases, name, path, size):
    body = (cases / f"streaming/{name}.sse").read_bytes()
    world.replica.script = lambda connection, request: connection.stream(pieces_of(body, size))
    with world.router.client() as client:
        response = client.post(path, chat_body(stream=True)).response()
        assert response.body == body
        assert response.complete
        assert response["content-type"] == "text/event-stream"
        # The connection stays usable.
        assert client.get("/healthz").status == 200


def test_characters_cut_by_pieces_come_whole_D13(world, cases):
    case = json.loads((cases / "streaming/split-characters.json").read_text())
    pieces = [bytes.fromhex(piece) for piece in case["pieces_hex"]]
    world.replica.script = lambda connection, request: connection.stream(pieces)
    with world.router.client() as client:
        response = client.chat(stream=True).response()
    assert response.body == bytes.fromhex(case["expected_body_hex"])


def test_events_are_not_held_back_D20(world):
    """Each event is sent only after the client has the one before, gzip asked for or not."""
    got = threading.Semaphore(0)

    def script(connection, request):
        connection.send(EVENT_STREAM)
        for number in range(5):
            connection.send(chunk(event(str(number))))
            assert got.acquire(timeout=20)
        connection.send(chunk(DONE) + b"0\r\n\r\n")

    world.replica.script = script
    with world.router.client() as client:
        client.chat(stream=True, fields=[("Accept-Encoding", "gzip")])
        response = client.response(on_piece=lambda piece: got.release())
    assert response.complete
    assert response["content-encoding"] is None
    assert response.body == b"".join(event(str(n)) for n in range(5)) + DONE
    assert world.replica.requests[0]["accept-encoding"] == "gzip"


def test_a_refusal_of_a_stream_comes_unchanged_D16(world):
    body = b'{"error": {"message": "max_tokens is  too large", "code": 400}}\n'
    world.replica.script = lambda connection, request: connection.text(
        400, body, [("Content-Type", "application/json")]
    )
    with world.router.client() as client:
        response = client.chat(stream=True).response()
    assert response.status == 400
    assert response.body == body
    assert response["content-length"] == str(len(body))


@pytest.mark.parametrize("leave", ["close", "reset", "half_close"])
def test_the_replica_is_told_when_the_client_goes_D17(world, leave):
    told = threading.Event()

    def script(connection, request):
        connection.send(EVENT_STREAM)
        for number in range(3):
            connection.send(chunk(event(str(number))))
        if connection.wait_closed():
            told.set()

    world.replica.script = script
    client = world.router.client()
    client.chat(stream=True)
    client.head()
    for _ in range(3):
        client.reader.until(b"\n\n")
    until(lambda: in_flight(world.router) == 1, what="one request in flight")
    if leave == "half_close":
        client.sock.shutdown(1)
    else:
        getattr(client, leave)()
    assert told.wait(5)
    until(lambda: in_flight(world.router) == 0, what="none in flight")
    client.close()


def in_flight(router):
    return router.metric("pointsman_requests_in_flight")


def test_a_client_that_goes_before_the_first_byte_ends_the_request(world):
    told = threading.Event()

    def script(connection, request):
        if connection.wait_closed():
            told.set()

    world.replica.script = script
    with world.router.client() as client:
        client.chat()
        world.replica.wait_requests()
    assert told.wait(5)
    until(lambda: in_flight(world.router) == 0, what="none in flight")


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_stream_cut_by_its_replica_never_ends_well_D18(world, end):
    def script(connection, request):
        connection.send(EVENT_STREAM + chunk(event("one")) + chunk(event("two")))
        getattr(connection, end)()

    world.replica.script = script
    with world.router.client() as client:
        response = client.chat(stream=True).response()
    assert not response.complete
    assert b"[DONE]" not in response.raw_body
    assert b"0\r\n\r\n" not in response.raw_body
    assert len(world.replica.requests) == 1


def test_an_error_event_tells_of_the_cut_D18(world):
    def script(connection, request):
        connection.send(EVENT_STREAM + chunk(event("one")))
        connection.close()

    world.replica.script = script
    with world.router.client() as client:
        client.chat(stream=True)
        client.head()
        rest, _ = client.reader.rest()
    assert event("one") in rest
    after = rest.split(event("one"), 1)[1]
    line = after[after.index(b"data: ") :].split(b"\n")[0]
    assert json.loads(line.removeprefix(b"data: "))["error"]["message"]


def test_nothing_is_added_inside_a_chunk_D18(world):
    """An event cut in the middle gets no error event: it would become part of it."""

    def script(connection, request):
        half = event("never whole")
        connection.send(EVENT_STREAM + b"%x\r\n" % len(half) + half[: len(half) // 2])
        connection.close()

    world.replica.script = script
    with world.router.client() as client:
        response = client.chat(stream=True).response()
    assert not response.complete
    assert b"error" not in response.raw_body


def test_a_replica_that_fails_before_any_byte_is_a_5xx_D18(world):
    world.replica.script = lambda connection, request: connection.reset()
    with world.router.client() as client:
        response = client.chat(stream=True).response()
    assert response.status == 502
    assert response.json["error"]["message"]
    assert response["x-pointsman-error"]


def test_an_event_stream_without_an_event_is_no_success_D19(world):
    def script(connection, request):
        connection.send(EVENT_STREAM)
        connection.send(b"0\r\n\r\n")

    world.replica.script = script
    with world.router.client() as client:
        response = client.chat(stream=True).response()
    assert response.status >= 500


def test_an_empty_stream_is_tried_elsewhere_D19(start):
    """Whichever replica is asked first ends its stream without an event."""
    asked = []

    def script(connection, request):
        asked.append(connection)
        if len(asked) == 1:
            connection.send(EVENT_STREAM)
            connection.close()
        else:
            connection.stream([event("whole"), DONE])

    replicas = [start(Replica(script)) for _ in range(2)]
    router = start(Router(replicas))
    with router.client() as client:
        response = client.chat(stream=True).response()
    assert response.status == 200
    assert response.body == event("whole") + DONE
    assert [len(replica.requests) for replica in replicas] == [1, 1]


def test_limits_are_on_silence_and_not_on_the_total_D15(start):
    silent = threading.Event()

    def script(connection, request):
        connection.send(EVENT_STREAM)
        for number in range(12):
            connection.send(chunk(event(str(number))))
            silent.wait(0.25)
        if request.json.get("max_tokens") == 1:
            connection.wait_closed()
        else:
            connection.send(chunk(DONE) + b"0\r\n\r\n")

    replica = start(Replica(script))
    router = start(Router([replica], timeouts={"gap": "1s"}))
    with router.client() as client:
        # 3 s in all, three times the limit on silence.
        response = client.chat(stream=True).response()
        assert response.complete
        assert response.body.endswith(DONE)
    with router.client() as client:
        response = client.chat(stream=True, max_tokens=1).response()
        assert not response.complete
        assert b'"error"' in response.raw_body


def test_a_client_that_reads_nothing_stops_its_replica(start):
    """Back-pressure: the replica can send only what the sockets between hold."""
    sent = []

    def script(connection, request):
        connection.send(EVENT_STREAM)
        connection.sock.settimeout(2)
        data = chunk(b"data: " + b"x" * 65_000 + b"\n\n")
        try:
            for _ in range(4_000):
                connection.sock.sendall(data)
                sent.append(len(data))
        except TimeoutError:
            connection.reset()

    replica = start(Replica(script))
    router = start(Router([replica]))
    client = router.client(receive_buffer=65_536)
    client.chat(stream=True)
    until(lambda: not replica.requests[:1] or replica.requests[0].connection.open is False, 30,
          "the replica is stopped")  # fmt: skip
    assert sum(sent) < 64 << 20
    client.close()


@pytest.mark.resident
def test_a_client_that_reads_nothing_costs_little(start):
    """100 of them: at most 256 KiB each, whatever their replica would send."""
    count = 100
    stalled = threading.Barrier(count + 1)
    release = threading.Event()

    def script(connection, request):
        connection.send(EVENT_STREAM)
        connection.sock.settimeout(1)
        data = chunk(b"data: " + b"x" * 65_000 + b"\n\n")
        try:
            for _ in range(1_000):
                connection.sock.sendall(data)
        except TimeoutError:
            stalled.wait(60)
            release.wait(60)

    router = start(Router([start(Replica(script))]))
    before = resident_kib(router.pid)
    clients = [start(router.client(receive_buffer=4096)) for _ in range(count)]
    for client in clients:
        client.chat(stream=True)
    stalled.wait(60)
    assert resident_kib(router.pid) - before < count * 256
    assert in_flight(router) == count
    release.set()


def resident_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1))


def test_two_streams_do_not_wait_for_each_other(world):
    release = threading.Event()

    def script(connection, request):
        connection.send(EVENT_STREAM + chunk(event("first")))
        if request.json.get("max_tokens") == 1:
            assert release.wait(20)
        connection.send(chunk(DONE) + b"0\r\n\r\n")

    world.replica.script = script
    with world.router.client() as slow, world.router.client() as quick:
        slow.chat(stream=True, max_tokens=1)
        assert quick.chat(stream=True).response().body == event("first") + DONE
        release.set()
        assert slow.response().body == event("first") + DONE


def test_a_reset_client_mid_request_leaves_no_trace(world):
    client = world.router.client()
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
    client.reset()
    with world.router.client() as other:
        assert other.chat().response().status == 200
    with pytest.raises(Gone), world.router.client() as half:
        half.send(b"POST /v1/chat").sock.shutdown(1)
        half.head()
