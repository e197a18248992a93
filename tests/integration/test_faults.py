"""Replicas that fail, hang or come late."""

import signal
import threading
import time

import pytest

from support.processes import POINTSMAN, Listening, until
from support.router import Router
from support.wire import DONE, EVENT_STREAM, Client, Replica, chunk, event


def test_bad_requests_never_count_against_a_replica_D37(start):
    """100 refused requests, then good ones are served by both replicas still."""

    def script(connection, request):
        if b"bad" in request.body:
            connection.json(400, {"error": {"message": "bad"}})
        else:
            connection.json(200, {"id": "c1"})

    replicas = [start(Replica(script)) for _ in range(2)]
    router = start(Router(replicas, policy="round_robin"))
    with router.client() as client:
        for _ in range(100):
            assert client.chat(text="bad").response().status == 400
        counts = [len(replica.requests) for replica in replicas]
        assert sum(counts) == 100
        for _ in range(10):
            assert client.chat(text="good").response().status == 200
    assert all(len(replica.requests) > count for replica, count in zip(replicas, counts))


def test_retries_do_not_feed_an_overload_D38(start):
    """Every replica fails every request: the budget bounds the tries, and the last upstream error
    is what the client sees."""
    body = b'{"error":{"message":"overloaded","type":"x"}}'

    def script(connection, request):
        connection.text(503, body, [("Content-Type", "application/json")])

    replicas = [start(Replica(script)) for _ in range(3)]
    router = start(Router(replicas))
    with router.client() as client:
        for _ in range(100):
            response = client.chat().response()
            assert (response.status, response.body) == (503, body)
    tries = sum(len(replica.requests) for replica in replicas)
    # 20 % of the last 10 s's requests, at least 10.
    assert 100 < tries <= 130


def test_liveness_does_not_wait_for_probes_that_hang_D66(start):
    def hang(connection, request):
        connection.wait_closed(60)

    replica = Replica()
    replica.probe_script = hang
    start(replica)
    router = start(Router([replica]))
    for _ in range(5):
        begin = time.monotonic()
        with router.client() as client:
            assert client.get("/healthz").status == 200
        assert time.monotonic() - begin < 1


def test_no_usable_replica_means_alive_but_not_ready_D67(start):
    replica = Replica()
    replica.healthy = False
    start(replica)
    router = start(Router([replica]))
    with router.client() as client:
        assert client.get("/healthz").status == 200
        assert client.get("/readyz").status == 503
        response = client.chat().response()
        assert response.status == 503
        assert response["retry-after"]
        assert response.json["error"]["message"]
        replica.healthy = True
        until(lambda: client.get("/readyz").status == 200, what="ready after a good probe")
        assert client.chat().response().status == 200


def test_head_works_on_the_health_paths(world):
    with world.router.client() as client:
        for path in ("/healthz", "/readyz", "/health"):
            assert client.request("HEAD", path).response("HEAD").status == 200


def test_it_starts_with_all_replicas_down_and_serves_when_they_come(start):
    gone = Replica()
    gone.close()
    router = start(Router([gone.url]))
    with router.client() as client:
        assert client.get("/healthz").status == 200
        assert client.chat().response().status == 503
        start(Replica(port=gone.port))
        until(lambda: client.get("/readyz").status == 200, what="ready when the replica comes")
        assert client.chat().response().status == 200


def test_few_descriptors_are_told_at_the_start(start):
    command = ["sh", "-c", "ulimit -n 512; exec \"$@\"", "sh", POINTSMAN, "serve", "--replicas"]
    command += [start(Replica()).url, "--listen", "127.0.0.1:0", "--admin", "off"]
    router = start(Listening(command))
    assert "may open 512 descriptors" in router.output()


def test_idle_clients_do_not_take_the_descriptors_that_replicas_need(start):
    """More clients than descriptors connect and stay silent; those who are in are served all the
    while, the replica stays in service, and the shortage is told once."""
    replica = start(Replica())
    command = ["sh", "-c", "ulimit -n 128; exec \"$@\"", "sh", POINTSMAN, "serve", "--threads", "1"]
    command += ["--replicas", replica.url, "--listen", "127.0.0.1:0", "--admin", "off"]
    router = start(Listening(command))
    clients = [start(Client(router.url)) for _ in range(200)]
    until(lambda: "new connections wait" in router.output(), what="the shortage is told")
    replica.wait_probes(len(replica.probes) + 3)
    for client in clients[:20]:
        assert client.chat().response().status == 200
    for client in clients[20:]:
        client.close()
    with Client(router.url) as late:
        assert late.chat().response().status == 200
    assert router.output().count("new connections wait") == 1
    assert "cannot probe" not in router.output()
    assert "not ready" not in router.output()


def test_one_slow_probe_does_not_take_a_replica_out_D68(start):
    """The second probe never answers; the replica stays in service all the while."""
    replica = Replica()
    hung = threading.Event()

    def script(connection, request):
        healths = [probe for probe in replica.probes if probe.target == "/health"]
        if request.target == "/health" and len(healths) == 2:
            hung.set()
            connection.wait_closed(60)
        elif request.target == "/v1/models":
            connection.json(200, {"object": "list", "data": [{"id": "m1"}]})
        else:
            connection.text(200, b"")

    replica.probe_script = script
    start(replica)
    router = start(Router([replica], health={"timeout": "1s"}))
    assert hung.wait(20)
    probes = len(replica.probes)
    with router.client() as client:
        for count in range(probes, probes + 5):
            replica.wait_probes(count)
            assert client.chat().response().status == 200
            assert client.get("/readyz").status == 200


def test_three_failed_probes_take_a_replica_out_and_one_brings_it_back(start):
    replica = start(Replica())
    router = start(Router([replica]))
    with router.client() as client:
        assert client.get("/readyz").status == 200
        replica.healthy = False
        until(lambda: client.get("/readyz").status == 503, what="out of service")
        replica.healthy = True
        until(lambda: client.get("/readyz").status == 200, what="back in service")


def test_a_killed_replica_fails_no_request_without_a_byte(start):
    """One of two replicas dies while requests wait on it: all are answered by the other."""
    hold = threading.Event()

    def doomed(connection, request):
        hold.wait(30)

    victim, other = start(Replica(doomed)), start(Replica())
    router = start(Router([victim, other], policy="round_robin"))
    clients = [start(router.client()) for _ in range(20)]
    for client in clients:
        client.chat()
    victim.wait_requests(5)
    victim.close()
    assert [client.response().status for client in clients] == [200] * 20
    hold.set()


def test_a_busy_replica_that_refuses_with_429_is_passed_over_while_another_takes(start):
    full = start(Replica(lambda connection, request: connection.json(429, {"error": "full"})))
    free = start(Replica())
    router = start(Router([full, free], policy="round_robin"))
    with router.client() as client:
        assert [client.chat().response().status for _ in range(10)] == [200] * 10
    assert len(free.requests) == 10


def test_a_429_of_the_only_replica_is_passed_on(world):
    error = b'{"error":{"message":"queue is full"}}'
    world.replica.script = lambda connection, request: connection.text(
        429, error, [("Content-Type", "application/json"), ("Retry-After", "3")]
    )
    with world.router.client() as client:
        response = client.chat().response()
    assert (response.status, response.body, response["retry-after"]) == (429, error, "3")


def test_an_idle_connection_that_the_replica_closed_costs_nothing(start):
    """Engines close idle connections; the next request goes on a fresh one, unseen."""

    def script(connection, request):
        connection.json(200, {"id": "c1"})
        connection.close()

    replica = start(Replica(script))
    router = start(Router([replica]))
    with router.client() as client:
        for _ in range(20):
            assert client.chat().response().status == 200
    assert len(replica.requests) == 20


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_the_only_replicas_error_is_passed_on_as_it_came(world, status):
    body = b'{"error":{"message":"from the engine","type":"x","code":%d}}' % status
    world.replica.script = lambda connection, request: connection.text(
        status, body, [("Content-Type", "application/json"), ("X-Engine", "yes")]
    )
    with world.router.client() as client:
        response = client.chat().response()
    assert (response.status, response.body, response["x-engine"]) == (status, body, "yes")


def test_termination_lets_running_exchanges_finish(start):
    release = threading.Event()

    def script(connection, request):
        connection.send(EVENT_STREAM + chunk(event("first")))
        assert release.wait(30)
        connection.send(chunk(DONE) + b"0\r\n\r\n")

    replica = start(Replica(script))
    router = start(Router([replica]))
    client = start(router.client())
    client.chat(stream=True)
    client.head()
    client.reader.until(b"\n\n")
    router.signal(signal.SIGTERM)
    until(lambda: refused(router.url), what="no new connections")
    release.set()
    rest, _ = client.reader.rest()
    assert rest.endswith(b"0\r\n\r\n")
    assert router.wait() == 0


def test_a_second_termination_cuts(start):
    def script(connection, request):
        connection.send(EVENT_STREAM + chunk(event("first")))
        connection.wait_closed(60)

    replica = start(Replica(script))
    router = start(Router([replica]))
    client = start(router.client())
    client.chat(stream=True)
    client.head()
    client.reader.until(b"\n\n")
    router.signal(signal.SIGTERM)
    until(lambda: refused(router.url), what="no new connections")
    router.signal(signal.SIGTERM)
    router.wait(10)


def refused(url):
    try:
        Client(url).close()
    except ConnectionRefusedError:
        return True
    return False
