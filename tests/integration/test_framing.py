"""Where a message ends: what is ambiguous is refused, what is clear passes to the byte."""

import pytest

from support.wire import chat_body, chunk

BODY = b'{"model":"m1","messages":[]}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: router.test\r\n"


def seen_by_replica(world):
    """The targets that reached the replica, a last harmless request included."""
    with world.router.client() as client:
        assert client.chat().response().status == 200
    return [request.target for request in world.replica.requests]


def assert_refused(world, data, status=400):
    with world.router.client() as client:
        response = client.send(data).response()
        assert response.status == status
        assert response.json["error"]["type"] == "invalid_request_error"
        assert client.closed()
    assert seen_by_replica(world) == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    "name",
    ["cl-and-te", "two-lengths", "empty-length", "chunk-size-with-letters"],
    ids=["D01", "D02", "D03", "D04"],
)
def test_two_readings_of_one_length_are_refused(world, cases, name):
    assert_refused(world, (cases / f"framing/{name}.http").read_bytes())


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Length: +28\r\n",
        b"Content-Length: -28\r\n",
        b"Content-Length: 0x1c\r\n",
        b"Content-Length: 28 28\r\n",
        b"Content-Length: 28, 0\r\n",
        b"Content-Length: 28.0\r\n",
        b"Content-Length: 18446744073709551644\r\n",
        b"Content-Length : 28\r\n",
        b"Content-Length: 28\r\nContent-Length: 29\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 28\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: \x0bchunked\r\n",
        b"X-Folded: one\r\n two\r\nContent-Length: 28\r\n",
        b"X-Bare: one\nContent-Length: 28\r\n",
        b"X-Null: a\x00b\r\nContent-Length: 28\r\n",
        b"X Space: a\r\nContent-Length: 28\r\n",
        b": nameless\r\nContent-Length: 28\r\n",
        b"Host: other.test\r\nContent-Length: 28\r\n",
    ],
)
def test_neighbours_of_an_ambiguous_length_are_refused(world, fields):
    with world.router.client() as client:
        response = client.send(HEAD + fields + b"\r\n" + BODY).response()
        assert response.status in (400, 501)
        assert client.closed()
    assert seen_by_replica(world) == ["/v1/chat/completions"]


@pytest.mark.parametrize(
    "size",
    [b"0x1c", b"+1c", b"-1c", b" 1c", b"1c ", b"", b"1g", b"10000000000000001c", b"1c\n"],
)
def test_a_chunk_size_is_hexadecimal_digits_and_nothing_else(world, size):
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
    assert_refused(world, data)


def test_a_chunk_longer_than_its_size_is_refused(world):
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n1b\r\n" + BODY + b"\r\n0\r\n\r\n"
    assert_refused(world, data)


def test_hop_by_hop_fields_of_a_request_stay_here_D05(world, cases):
    with world.router.client() as client:
        client.send((cases / "framing/connection-named-header.http").read_bytes())
        assert client.response().status == 200
    (request,) = world.replica.requests
    assert request["x-end-to-end"] == "2"
    assert request["x-only-this-hop"] is None
    assert "X-Only-This-Hop" not in (request["connection"] or "")
    assert request["host"] == world.replica.authority


@pytest.mark.parametrize(
    "name", ["Keep-Alive", "Proxy-Connection", "TE", "Proxy-Authorization"]
)
def test_fields_that_are_always_hop_by_hop_stay_here(world, name):
    with world.router.client() as client:
        assert client.chat(fields=[(name, "x")]).response().status == 200
    assert world.replica.requests[0][name] is None


def test_hop_by_hop_fields_of_a_response_stay_here_D05(world):
    world.replica.script = lambda connection, request: connection.text(
        200, b"ok", [("Connection", "keep-alive, X-Hop"), ("X-Hop", "1"), ("X-End", "2")]
    )
    with world.router.client() as client:
        response = client.chat().response()
    assert response["x-end"] == "2"
    assert response["x-hop"] is None
    assert response.body == b"ok"


@pytest.mark.parametrize("target", [b"/v1/no-such-endpoint", b"/no-such-endpoint"])
def test_a_refused_body_is_never_read_as_a_request_D06(world, cases, target):
    """Refused by the replica, and by the router itself."""

    def script(connection, request):
        connection.json(404 if "no-such" in request.target else 200, {})

    world.replica.script = script
    data = (cases / "framing/refused-with-body-then-good.http").read_bytes()
    data = data.replace(b"/v1/no-such-endpoint", target)
    with world.router.client() as client:
        first = client.send(data).response()
        assert 400 <= first.status < 500
        if (first["connection"] or "").lower() == "close":
            assert client.closed()
        else:
            assert client.response("GET").status == 200
    passed_on = [target.decode()] if target.startswith(b"/v1/") else []
    assert seen_by_replica(world) == [*passed_on, "/v1/chat/completions"]


def test_a_response_until_close_comes_whole_D07(world, cases):
    data = (cases / "framing/response-until-close.http").read_bytes()

    def script(connection, request):
        connection.send(data)
        connection.close()

    world.replica.script = script
    with world.router.client() as client:
        response = client.chat().response()
    assert response.status == 200
    assert response.body == b'{"id":"r1","choices":[]}'
    assert response.complete


def test_a_response_cut_short_is_visibly_cut(world):
    def script(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 150_000)
        connection.close()

    world.replica.script = script
    with world.router.client() as client:
        response = client.chat().response()
    assert not response.complete


def test_a_head_answer_has_a_length_and_no_body_D08(world):
    world.replica.script = lambda connection, request: connection.send(
        b"HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n"
    )
    with world.router.client() as client:
        response = client.request("HEAD", "/v1/chat/completions").response("HEAD")
        assert response.status == 200
        assert response["content-length"] == "10485760"
        # The connection is as good as before.
        assert client.get("/healthz").status == 200


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body_end_at_their_head(world, status):
    world.replica.script = lambda connection, request: connection.send(
        f"HTTP/1.1 {status} None\r\nX-A: b\r\n\r\n".encode()
    )
    with world.router.client() as client:
        for _ in range(2):
            assert client.chat().response().status == status


@pytest.mark.parametrize("size", [200_000, 1_100_000, 9_000_000, 17_000_000])
def test_large_bodies_pass_to_the_byte_D09(world, size):
    with world.router.client() as client:
        body = chat_body(text="x" * size)
        assert client.post("/v1/chat/completions", body).response().status == 200
    (request,) = world.replica.requests
    assert request.json == body


@pytest.mark.parametrize("size", [200_000, 17_000_000])
def test_large_chunked_bodies_pass_to_the_byte(world, size):
    body = b'{"model":"m1","messages":[{"role":"user","content":"' + b"y" * size + b'"}]}'
    pieces = [body[i : i + 50_000] for i in range(0, len(body), 50_000)]
    with world.router.client() as client:
        client.post("/v1/chat/completions", b"", chunks=pieces)
        assert client.response().status == 200
    assert world.replica.requests[0].body == body


def test_ten_kilobytes_of_headers_pass_and_too_many_are_431_D09(world):
    with world.router.client() as client:
        assert client.chat(fields=[("X-Long", "a" * 10_000)]).response().status == 200
        assert world.replica.requests[0]["x-long"] == "a" * 10_000
        client.send(HEAD + b"X-Long: " + b"a" * 2_000_000 + b"\r\n\r\n")
        response = client.response()
    assert response.status == 431
    assert response.json["error"]


def test_large_answers_pass_to_the_byte_D09(world):
    body = bytes(range(256)) * 40_000
    world.replica.script = lambda connection, request: connection.text(200, body)
    with world.router.client() as client:
        assert client.chat().response().body == body


def test_trailers_survive_both_ways(world):
    world.replica.script = lambda connection, request: connection.send(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        + chunk(b"abc")
        + b"0\r\nX-Sum: 3\r\n\r\n"
    )
    with world.router.client() as client:
        client.send(
            HEAD + b"Transfer-Encoding: chunked\r\nTrailer: X-Check\r\n\r\n"
            + chunk(BODY) + b"0\r\nX-Check: 7\r\n\r\n"
        )  # fmt: skip
        response = client.response()
    assert ("x-check", "7") in world.replica.requests[0].trailers
    assert response.body == b"abc"
    assert ("x-sum", "3") in response.trailers


def test_pipelined_requests_are_answered_in_order(world):
    world.replica.script = lambda connection, request: connection.text(200, request.body)
    with world.router.client() as client:
        for text in ("one", "two", "three"):
            client.chat(text=text)
        bodies = [client.response().json["messages"][0]["content"] for _ in range(3)]
    assert bodies == ["one", "two", "three"]


def test_expect_continue_is_answered_before_the_body(world):
    with world.router.client() as client:
        client.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 28\r\n\r\n")
        assert client.reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100")
        assert client.send(BODY).response().status == 200
    assert world.replica.requests[0].body == BODY


def test_http_1_0_clients_get_a_body_without_chunks(world):
    world.replica.script = lambda connection, request: connection.stream([b"data: a\n\n"])
    with world.router.client() as client:
        response = client.post("/v1/completions", BODY, version="1.0").response()
    assert response["transfer-encoding"] is None
    assert response.body == b"data: a\n\n"
    assert response.complete


@pytest.mark.parametrize(
    "target",
    ["/v1/../metrics", "/v1/./models", "/v1//models", "/v1/%2e%2e/metrics", "/v1/a%2Fb", "/v1/%00"],
)
def test_paths_with_two_readings_are_refused(world, target):
    with world.router.client() as client:
        assert client.get(target).status == 400
    assert world.replica.requests == []


@pytest.mark.parametrize(
    "target", ["/metrics", "/", "/v1", "/admin", "/v1/load_lora_adapter", "/sleep", "/v2/models"]
)
def test_no_path_of_an_engine_but_the_proxied_ones_is_reachable(world, target):
    with world.router.client() as client:
        response = client.post(target, BODY).response()
    assert response.status == 404
    assert response.json["error"]
    assert world.replica.requests == []
