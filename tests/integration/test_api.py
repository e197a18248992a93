"""What an OpenAI client may expect, and that bodies go on as they came."""

import json
import threading

import pytest

from support.processes import until
from support.router import Router
from support.wire import DONE, Client, Replica, chat_body, event

CHAT = "/v1/chat/completions"


def test_unknown_fields_pass_to_the_byte_D51(world, cases):
    body = (cases / "api/unknown-fields.json").read_bytes()
    fields = [("Content-Type", "application/json")]
    with world.router.client() as client:
        assert client.post(CHAT, body, fields).response().status == 200
    assert world.replica.requests[0].body == body


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m1","model":"m1","messages":[]}',
        b'{ "model" : "m1" ,\r\n\t"n" : 1e0, "x":18446744073709551615, "s":"\\u00e9\xc3\xa9"}',
        b'{"model":"m1","messages":[{"role":"user","content":"\xf0\x9f\x9a\x8b"}],"a":1.10}',
        b'{"model":"m1"',
        b'["m1"]',
        b"\xef\xbb\xbf{}",
        b"",
    ],
)
def test_every_spelling_of_a_body_passes_to_the_byte(world, body):
    with world.router.client() as client:
        assert client.post(CHAT, body).response().status == 200
    assert world.replica.requests[0].body == body


def test_the_replicas_own_400_for_a_broken_body_comes_back(world):
    error = b'{"error":{"message":"bad json","type":"BadRequestError","code":400}}'
    world.replica.script = lambda connection, request: connection.text(
        400, error, [("Content-Type", "application/json")]
    )
    with world.router.client() as client:
        response = client.post(CHAT, b"{").response()
    assert (response.status, response.body) == (400, error)


def test_query_and_target_pass_unchanged(world):
    with world.router.client() as client:
        client.post("/v1/completions?api-version=1&x=%41%2f&&", b"{}").response()
    assert world.replica.requests[0].target == "/v1/completions?api-version=1&x=%41%2f&&"


def test_a_request_id_is_made_where_there_is_none_and_kept_where_there_is(world):
    with world.router.client() as client:
        made = client.chat().response()["x-request-id"]
        assert made
        assert world.replica.requests[0]["x-request-id"] == made
        given = client.chat(fields=[("X-Request-Id", "mine-1")]).response()["x-request-id"]
        assert given == "mine-1"
        assert world.replica.requests[1].all("x-request-id") == ["mine-1"]


def test_the_clients_authorization_reaches_the_replica(world):
    with world.router.client() as client:
        client.chat(fields=[("Authorization", "Bearer secret")]).response()
    assert world.replica.requests[0]["authorization"] == "Bearer secret"


@pytest.fixture(scope="module")
def model_world(cases):
    served = json.loads((cases / "api/model-names.json").read_text())["served"]
    with Replica(models=served) as one, Replica(models=served) as two, Router([one, two]) as router:
        router.wait_models(len(served))
        yield router


@pytest.mark.parametrize("number", range(7))
def test_model_names_are_taken_literally_D52(model_world, cases, number):
    case = json.loads((cases / "api/model-names.json").read_text())["requests"][number]
    body = {"messages": [], **({"model": case["model"]} if "model" in case else {})}
    with model_world.client() as client:
        response = client.post(CHAT, body).response()
    expected = {"served": 200, "404": 404}.get(case["expected"], 400)
    assert response.status == expected
    if expected == 404:
        error = response.json["error"]
        assert error["code"] == "model_not_found"
        assert error["param"] == "model"
        assert error["type"] == "invalid_request_error"
        assert case["model"] in error["message"]


def test_a_missing_model_is_forwarded_where_only_one_is_served(world):
    with world.router.client() as client:
        assert client.post(CHAT, {"messages": []}).response().status == 200


def test_an_unknown_model_is_forwarded_where_a_replica_gives_no_list(start):
    replicas = [start(Replica(models=["m1"])), start(Replica(models=500))]
    router = start(Router(replicas))
    with router.client() as client:
        assert client.chat(model="elsewhere").response().status == 200


def test_multipart_is_routed_by_its_model_and_passes_to_the_byte_D53(start, cases):
    body = (cases / "api/transcription.multipart").read_bytes()
    subtitles = b"1\n00:00:00,000 --> 00:00:01,000\nhello\n"

    def script(connection, request):
        connection.text(200, subtitles, [("Content-Type", "text/plain; charset=utf-8")])

    holder, other = start(Replica(script)), start(Replica(script, models=["m2"]))
    router = start(Router([other, holder]))
    router.wait_models(2)
    fields = [("Content-Type", "multipart/form-data; boundary=sep-7")]
    with router.client() as client:
        for _ in range(4):
            response = client.post("/v1/audio/transcriptions", body, fields).response()
            assert (response.status, response.body) == (200, subtitles)
            assert response["content-type"] == "text/plain; charset=utf-8"
    assert [request.body for request in holder.requests] == [body] * 4
    assert [request["content-type"] for request in holder.requests] == [fields[0][1]] * 4
    assert other.requests == []


def test_a_broken_form_is_the_clients_fault_D54(world):
    world.replica.script = lambda connection, request: connection.json(400, {"error": "bad form"})
    fields = [("Content-Type", "multipart/form-data; boundary=sep-7")]
    with world.router.client() as client:
        response = client.post("/v1/audio/transcriptions", b"not a form", fields).response()
    assert response.status == 400
    assert response.json["error"]


def test_model_lists_are_merged_D55(start, cases):
    case = json.loads((cases / "api/models.json").read_text())["upstreams"]
    a, b = (start(Replica(models={"object": "list", **case[name]})) for name in "ab")
    locked = start(Replica(models=401))
    router = start(Router([a, b, locked]))
    router.wait_models(2)
    with router.client() as client:
        response = client.get("/v1/models")
        models = {model["id"]: model for model in response.json["data"]}
        assert len(response.json["data"]) == 2
        assert models["m1"]["max_model_len"] == 16384
        assert models["m1"]["owned_by"] == "x"
        assert models["m1-adapter"]["parent"] == "m1"
        # Where the three are equally loaded chance decides; that it leaves one out so often does
        # not happen.
        for _ in range(60):
            assert client.chat().response().status == 200
    assert locked.requests


@pytest.mark.parametrize("stream", [False, True])
def test_a_chain_of_responses_stays_on_its_replica_D56(start, stream):
    """Ids are learnt from plain answers and from streams."""
    count = iter(range(1, 1000))

    def script(connection, request):
        name = f"resp_{next(count)}"
        if stream:
            created = {"type": "response.created", "response": {"id": name}}
            delta = {"type": "response.output_text.delta", "delta": "x"}
            lines = [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in (created, delta)]
            connection.stream([line.encode() for line in lines])
        else:
            connection.json(200, {"id": name, "object": "response", "output": []})

    replicas = [start(Replica(script)) for _ in range(4)]
    router = start(Router(replicas, policy="round_robin"))

    def ask(**more):
        with router.client() as client:
            before = [len(replica.requests) for replica in replicas]
            client.post("/v1/responses", {"model": "m1", "input": "a", "stream": stream, **more})
            response = client.response()
            assert response.status == 200
            after = [len(replica.requests) for replica in replicas]
        text = response.body.decode()
        name = text[text.index("resp_") :].split('"')[0]
        return name, [b - a for a, b in zip(before, after)].index(1)

    for _ in range(6):
        name, home = ask()
        for _ in range(3):
            name, served_by = ask(previous_response_id=name)
            assert served_by == home


def test_an_id_in_the_path_pins_too(start):
    def script(connection, request):
        connection.json(200, {"id": "resp_7", "object": "response", "output": []})

    replicas = [start(Replica(script)) for _ in range(3)]
    router = start(Router(replicas, policy="round_robin"))
    with router.client() as client:
        client.post("/v1/responses", {"model": "m1", "input": "a"}).response()
        home = next(replica for replica in replicas if replica.requests)
        for _ in range(5):
            assert client.get("/v1/responses/resp_7").status == 200
            assert client.post("/v1/responses/resp_7/cancel", b"").response().status == 200
    assert len(home.requests) == 11


def test_a_chain_whose_replica_is_gone_goes_elsewhere_once_D56(start):
    """The answer of the other replica comes back unchanged."""
    error = {"error": {"message": "no such response", "code": 404}}

    def script(connection, request):
        if "previous_response_id" in (request.json or {}):
            connection.json(404, error)
        else:
            connection.json(200, {"id": "resp_1", "object": "response", "output": []})

    replicas = [start(Replica(script)) for _ in range(2)]
    router = start(Router(replicas))
    with router.client() as client:
        client.post("/v1/responses", {"model": "m1", "input": "a"}).response()
        home, other = sorted(replicas, key=lambda replica: -len(replica.requests))
        home.close()
        until(lambda: usable_replicas(router) == 1, what="the replica is seen to be gone")
        body = {"model": "m1", "input": "b", "previous_response_id": "resp_1"}
        response = client.post("/v1/responses", body).response()
    assert (response.status, response.json) == (404, error)
    assert len(other.requests) == 1


def usable_replicas(router):
    with Client(router.urls["admin"]) as client:
        replicas = client.get("/v1/replicas").json["replicas"]
    return sum(replica["usable"] for replica in replicas)


def test_websockets_pass_both_ways_and_end_together_D57(world):
    ended = threading.Event()

    def script(connection, request):
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: abc\r\n\r\nhello"
        )
        while data := connection.sock.recv(100):
            if data == b"end":
                return connection.close()
            connection.send(data.upper())
        ended.set()

    world.replica.script = script
    fields = [
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", "k"),
        ("Sec-WebSocket-Version", "13"),
    ]
    with world.router.client() as client:
        client.request("GET", "/v1/realtime?model=m1", fields=fields)
        response = client.head()
        assert response.status == 101
        assert response["upgrade"] == "websocket"
        assert "upgrade" in response["connection"].lower()
        assert response["sec-websocket-accept"] == "abc"
        assert client.reader.take(5) == b"hello"
        client.send(b"\x00ping\xff")
        assert client.reader.take(6) == b"\x00PING\xff"
    assert ended.wait(20)
    request = world.replica.requests[0]
    assert request["upgrade"] == "websocket"
    assert "upgrade" in request["connection"].lower()

    with world.router.client() as client:
        client.request("GET", "/v1/realtime?model=m1", fields=fields)
        client.head()
        client.reader.take(5)
        client.send(b"end")
        assert client.closed()


def test_a_refused_upgrade_is_an_ordinary_answer(world):
    world.replica.script = lambda connection, request: connection.json(403, {"error": "no"})
    fields = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    with world.router.client() as client:
        response = client.request("GET", "/v1/realtime?model=m1", fields=fields).response("GET")
    assert response.status == 403


def test_the_last_of_two_models_counts_as_at_the_engines(start):
    one, two = start(Replica()), start(Replica(models=["m2"]))
    router = start(Router([one, two]))
    router.wait_models(2)
    with router.client() as client:
        body = b'{"model":"m1","messages":[],"model":"m2"}'
        assert client.post(CHAT, body).response().status == 200
    assert (len(one.requests), len(two.requests)) == (0, 1)


def test_streams_of_the_official_form_pass(world):
    world.replica.script = lambda connection, request: connection.stream([event("a"), DONE])
    with world.router.client() as client:
        assert client.post(CHAT, chat_body(stream=True)).response().body == event("a") + DONE
