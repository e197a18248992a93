"""HTTP/2 with the clients that people have: nghttp, h2load, curl and Python's."""

import asyncio
import json
import re
import shutil
import subprocess
import threading

import pytest
from support.certificates import Authority
from support.processes import until
from support.router import Router
from support.wire import DONE, EVENT_STREAM, Replica, chat_body, chunk, event

CHAT = "/v1/chat/completions"
EVENTS = [event(str(number)) for number in range(5)]


def program(name):
    """The program's path; the test is skipped where it is missing."""
    path = shutil.which(name)
    if not path:
        pytest.skip(f"{name} is not installed (tools/install_packages test)")
    return path


def run(*words, stdin=None):
    result = subprocess.run(
        [str(word) for word in words], capture_output=True, input=stdin, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr.decode() + result.stdout.decode()
    return result.stdout


def echo(connection, request):
    connection.text(200, request.body)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A router with TLS before a replica, and the CA."""
    authority = Authority(tmp_path_factory.mktemp("ca"))
    server = authority.server()
    files = {"certificate": str(server.certificate), "key": str(server.key)}
    with Replica() as replica, Router([replica], listen_tls=files) as router:
        yield replica, router, authority.certificate


def ends_with_nothing_held(router):
    until(lambda: router.metric("pointsman_requests_in_flight") == 0, what="no request runs")
    until(lambda: router.metric("pointsman_replica_in_flight") == 0, what="the ledger is zero")
    assert router.metric("pointsman_internal_errors_total") == 0
    assert router.metric("pointsman_held_body_bytes") == 0


# --- curl


def curl(url, *words, **more):
    """(status, HTTP version, body)."""
    out = run(program("curl"), "-sS", "-w", "\n%{http_code} %{http_version}", *words, url, **more)
    body, _, last = out.rpartition(b"\n")
    status, version = last.decode().split()
    return int(status), version, body


def test_curl_speaks_h2c_by_prior_knowledge(world):
    body = json.dumps(chat_body()).encode()
    world.replica.script = echo
    url = world.router.url + CHAT
    assert curl(url, "--http2-prior-knowledge", "--data-binary", body.decode()) == (200, "2", body)
    assert world.replica.requests[0].start == f"POST {CHAT} HTTP/1.1"
    assert world.replica.requests[0].body == body


def test_curl_speaks_h2_over_tls(tls):
    replica, router, ca = tls
    replica.script = echo
    body = json.dumps(chat_body()).encode()
    for flag, version in (("--http2", "2"), ("--http1.1", "1.1")):
        words = (flag, "--cacert", ca, "--data-binary", body.decode())
        assert curl(router.url + CHAT, *words) == (200, version, body)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_megabyte_comes_whole_both_ways(world, tmp_path, chunked):
    world.replica.script = echo
    path = tmp_path / "body"
    path.write_bytes(json.dumps({"model": "m1", "input": "x" * 1_000_000}).encode())
    words = ["--http2-prior-knowledge", "-X", "POST"]
    words += ["-T", "-"] if chunked else ["--data-binary", f"@{path}"]
    more = {"stdin": path.read_bytes()} if chunked else {}
    status, _, body = curl(world.router.url + "/v1/embeddings", *words, **more)
    assert status == 200
    assert body == path.read_bytes()
    assert (world.replica.requests[0]["transfer-encoding"] == "chunked") == chunked
    ends_with_nothing_held(world.router)


def test_an_upgrade_to_h2c_is_not_taken_and_the_request_is_answered(world):
    status, version, _ = curl(world.router.url + CHAT, "--http2", "-d", json.dumps(chat_body()))
    assert (status, version) == (200, "1.1")
    assert world.replica.requests[0]["upgrade"] is None


# --- nghttp and h2load


def test_nghttp_gets_what_the_replica_sent(world):
    world.replica.script = lambda connection, request: connection.stream([*EVENTS, DONE])
    body = run(program("nghttp"), "-H", ":method: GET", world.router.url + "/v1/files")
    assert body == b"".join(EVENTS) + DONE


def test_nghttp_over_tls(tls):
    replica, router, _ = tls
    replica.script = echo
    out = run(program("nghttp"), "-nv", router.url + "/v1/files").decode()
    assert "The negotiated protocol: h2" in out
    assert re.search(r":status: .*200", re.sub(r"\x1b\[[0-9;]*m", "", out))


@pytest.mark.parametrize("secure", [False, True])
def test_h2load_has_every_request_answered(world, tls, tmp_path, secure):
    replica, router = tls[:2] if secure else (world.replica, world.router)
    replica.script = lambda connection, request: connection.stream([*EVENTS, DONE])
    data = tmp_path / "body"
    data.write_text(json.dumps(chat_body(stream=True)))
    load = ["-n", "400", "-c", "4", "-m", "25", "-d", data]
    out = run(program("h2load"), *load, router.url + CHAT).decode()
    assert "400 succeeded, 0 failed, 0 errored" in out, out
    ends_with_nothing_held(router)


# --- Python


@pytest.fixture
def httpx():
    pytest.importorskip("h2")
    return pytest.importorskip("httpx2")


def test_events_are_not_held_back(world, httpx):
    """Each event is sent only after the client has the one before."""
    got = threading.Semaphore(0)

    def script(connection, request):
        connection.send(EVENT_STREAM)
        for each in EVENTS:
            connection.send(chunk(each))
            assert got.acquire(timeout=20)
        connection.send(chunk(DONE) + b"0\r\n\r\n")

    world.replica.script = script
    body = b""
    with (
        httpx.Client(http1=False, http2=True, timeout=20) as client,
        client.stream("POST", world.router.url + CHAT, json=chat_body(stream=True)) as response,
    ):
        assert response.http_version == "HTTP/2"
        assert response.headers["content-type"] == "text/event-stream"
        for piece in response.iter_raw():
            body += piece
            got.release()
    assert body == b"".join(EVENTS) + DONE


def test_half_of_the_streams_are_cancelled(world, httpx):
    """The replica is told of each at once, the others come whole, and nothing stays in the ledger."""
    count = 30
    ended = []

    def script(connection, request):
        connection.send(EVENT_STREAM + chunk(EVENTS[0]))
        if request.json["cancelled"]:
            ended.append(connection.wait_closed())
            connection.close()
        else:
            connection.send(chunk(EVENTS[1]) + chunk(DONE) + b"0\r\n\r\n")

    world.replica.script = script
    bodies = []

    async def ask(client, cancelled):
        body = chat_body(stream=True, cancelled=cancelled)
        async with client.stream("POST", world.router.url + CHAT, json=body) as response:
            pieces = response.aiter_raw()
            text = await anext(pieces)
            if not cancelled:
                bodies.append(text + b"".join([piece async for piece in pieces]))

    async def ask_all():
        opened = world.router.metric("pointsman_http2_connections_opened_total")
        async with httpx.AsyncClient(http1=False, http2=True, timeout=20) as client:
            await client.get(world.router.url + "/healthz")
            await asyncio.gather(*(ask(client, number % 2 == 0) for number in range(count)))
            # All of it was one connection, which goes on.
            response = await client.get(world.router.url + "/healthz")
            assert response.status_code == 200
        assert world.router.metric("pointsman_http2_connections_opened_total") == opened + 1

    asyncio.run(ask_all())
    until(lambda: len(ended) == count // 2, what="the replica has seen every cancel")
    assert all(ended)
    assert bodies == [EVENTS[0] + EVENTS[1] + DONE] * (count // 2)
    ends_with_nothing_held(world.router)


def test_a_cut_answer_is_an_error(world, httpx):
    def script(connection, request):
        connection.send(EVENT_STREAM + chunk(EVENTS[0]) + b"10\r\nhalf")
        connection.close()

    world.replica.script = script
    with httpx.Client(http1=False, http2=True, timeout=20) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            client.post(world.router.url + CHAT, json=chat_body(stream=True))
        assert client.get(world.router.url + "/healthz").status_code == 200


def test_own_errors_come_as_they_do_by_http11(world, httpx):
    with httpx.Client(http1=False, http2=True, timeout=20) as client:
        for path, headers, status, word in (
            ("/nowhere", {}, 404, "not_found"),
            ("/v1//files", {}, 400, "bad_path"),
            ("/v1/files", {"x-long": "a" * 40_000, "x-more": "a" * 40_000}, 431, "head_too_large"),
        ):
            response = client.get(world.router.url + path, headers=headers)
            assert response.status_code == status
            assert response.headers["x-pointsman-error"] == word
            assert response.json()["error"]["message"]


def test_the_official_client_speaks_h2(tls):
    pytest.importorskip("h2")
    openai = pytest.importorskip("openai")
    replica, router, ca = tls
    replica.script = lambda connection, request: connection.stream([*EVENTS, DONE])
    import ssl

    http = openai.DefaultHttpx2Client(http2=True, verify=ssl.create_default_context(cafile=ca))
    with openai.OpenAI(base_url=router.url + "/v1", api_key="k", http_client=http) as client:
        stream = client.chat.completions.create(
            model="m1", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert [chunk.choices[0].delta.content for chunk in stream] == list("01234")
        assert stream.response.http_version == "HTTP/2"


def test_the_access_log_says_the_protocol(tmp_path):
    log = tmp_path / "access.log"
    with Replica() as replica, Router([replica], log={"access": str(log)}) as router:
        for flag in ("--http2-prior-knowledge", "--http1.1", "--http1.0"):
            assert curl(router.url + "/v1/files", flag)[0] == 200
        lines = until(
            lambda: log.exists() and len(found := log.read_text().splitlines()) == 3 and found,
            what="the log has the lines",
        )
    assert [json.loads(line)["protocol"] for line in lines] == ["HTTP/2", "HTTP/1.1", "HTTP/1.0"]


def test_a_shutdown_lets_streams_finish():
    go_on = threading.Event()

    def script(connection, request):
        connection.send(EVENT_STREAM + chunk(EVENTS[0]))
        assert go_on.wait(20)
        connection.send(chunk(DONE) + b"0\r\n\r\n")

    words = ["-sSN", "--http2-prior-knowledge", "-d", json.dumps(chat_body(stream=True))]
    with Replica(script) as replica, Router([replica]) as router:
        command = [program("curl"), *words, router.url + CHAT]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            assert client.stdout.read(len(EVENTS[0])) == EVENTS[0]
            router.process.terminate()
            until(lambda: "shutting down" in router.output(), what="the router has heard it")
            go_on.set()
            assert client.stdout.read() == DONE
            assert client.wait(20) == 0
        assert router.wait() == 0
