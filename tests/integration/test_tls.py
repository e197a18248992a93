"""TLS to clients and to replicas, with other implementations on the other side."""

import concurrent.futures
import os
import signal
import socket
import ssl
import subprocess
import threading
import time

import pytest
from support.certificates import Authority
from support.processes import POINTSMAN, until
from support.router import Router
from support.wire import DONE, EVENT_STREAM, Client, Gone, Replica, chunk, event


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority):
    return authority.server()


def listen_tls(certificate, **more):
    return {"certificate": str(certificate.certificate), "key": str(certificate.key), **more}


def client_context(authority, **more):
    context = ssl.create_default_context(cafile=authority.certificate)
    for name, value in more.items():
        setattr(context, name, value)
    return context


def server_context(certificate, ca=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    if ca:
        context.load_verify_locations(ca.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@pytest.fixture(scope="module")
def shared_tls_world(authority, server):
    with Replica() as replica, Router([replica], listen_tls=listen_tls(server)) as router:
        yield replica, router


@pytest.fixture
def tls_world(shared_tls_world):
    replica, router = shared_tls_world
    yield replica, router
    assert router.alive(), router.output()


def curl(router, authority, *words, path="/v1/models"):
    """Exit code, standard output, standard error."""
    result = subprocess.run(
        ["curl", "-sS", "--cacert", authority.certificate, *words, router.url + path],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return result.returncode, result.stdout, result.stderr


def s_client(router, authority, *words, send=""):
    address = router.url.removeprefix("https://")
    result = subprocess.run(
        ["openssl", "s_client", "-connect", address, "-CAfile", authority.certificate, *words],
        input=send,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return result.stdout + result.stderr


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_curl_is_served(tls_world, authority, version):
    _, router = tls_world
    code, out, error = curl(router, authority, f"--tlsv{version}", "--tls-max", version, "-v")
    assert code == 0, error
    assert '"id": "m1"' in out
    assert f"TLSv{version}" in error and "ALPN: server accepted http/1.1" in error


def test_old_versions_and_unknown_authorities_are_refused(tls_world, authority, tmp_path):
    _, router = tls_world
    before = router.metric("pointsman_tls_handshakes_failed_total")
    code, _, error = curl(
        router, authority, "--tls-max", "1.1", "--tlsv1.0", "--ciphers", "DEFAULT@SECLEVEL=0"
    )
    assert code == 35, error
    code, _, error = curl(router, Authority(tmp_path))
    assert code == 60, error
    until(
        lambda: router.metric("pointsman_tls_handshakes_failed_total") == before + 2,
        what="both are counted",
    )


def test_a_session_is_resumed_and_renegotiation_refused(tls_world, authority, tmp_path):
    _, router = tls_world
    session = tmp_path / "session"
    request = "GET /v1/models HTTP/1.1\nHost: a\nConnection: close\n\n"
    words = ["-tls1_2", "-crlf", "-ign_eof"]
    first = s_client(router, authority, *words, "-sess_out", session, send=request)
    assert "New, TLSv1.2" in first and "Compression: NONE" in first, first
    assert '"id": "m1"' in first and "Verify return code: 0 (ok)" in first
    second = s_client(router, authority, *words, "-sess_in", session, send=request)
    assert "Reused, TLSv1.2" in second and '"id": "m1"' in second, second
    # "R" at the start of a line asks for renegotiation.
    third = s_client(router, authority, "-tls1_2", send="R\n")
    assert "no renegotiation" in third, third
    # Nothing that Mozilla's list does not have.
    cbc = s_client(router, authority, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA")
    assert "handshake failure" in cbc, cbc


def test_the_official_client_streams(tls_world, authority):
    openai = pytest.importorskip("openai")
    replica, router = tls_world
    replica.script = lambda c, _: c.stream([event("a"), event("b"), DONE])
    with openai.DefaultHttpxClient(verify=client_context(authority)) as http:
        client = openai.OpenAI(base_url=router.url + "/v1", api_key="k", http_client=http)
        stream = client.chat.completions.create(
            model="m1", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert [part.choices[0].delta.content for part in stream] == ["a", "b"]


def test_each_event_of_a_stream_arrives_by_itself(tls_world, authority):
    replica, router = tls_world
    seen = threading.Semaphore(0)

    def script(connection, _):
        connection.send(EVENT_STREAM)
        for number in range(20):
            connection.send(chunk(event(str(number))))
            assert seen.acquire(timeout=10), f"event {number} was held back"
        connection.send(b"0\r\n\r\n")

    replica.script = script
    with router.client(tls=client_context(authority)) as client:
        response = client.chat(stream=True).response(on_piece=lambda _: seen.release())
    assert response.complete and len(response.body.split(b"\n\n")) == 21


def test_large_bodies_pass_both_ways(tls_world, authority):
    replica, router = tls_world
    replica.script = lambda c, request: c.text(200, request.body)
    body = os.urandom(1 << 20) * 20
    with router.client(tls=client_context(authority)) as client:
        # One after the other: Python's TLS sockets are not for two threads at a time.
        client.post("/v1/embeddings", body)
        response = client.response()
    assert response.body == body


def test_a_client_that_announces_its_end_has_left(tls_world, authority):
    replica, router = tls_world
    gone = threading.Event()

    def script(connection, _):
        connection.send(EVENT_STREAM + chunk(event("a")))
        if connection.wait_closed():
            gone.set()

    replica.script = script
    with router.client(tls=client_context(authority)) as client:
        client.chat(stream=True).head()
        client.reader.until(b"\n\n")
        with pytest.raises((ssl.SSLError, OSError)):
            client.sock.settimeout(0.01)
            client.sock.unwrap()
        assert gone.wait(10)


def test_what_is_no_tls_is_answered_or_closed_and_counted(tls_world, authority):
    _, router = tls_world

    def failed(reason):
        metrics = router.metrics()
        return metrics.get(f'pointsman_tls_handshakes_failed_total{{reason="{reason}"}}', 0)

    plain, other = failed("plain_http"), failed("not_tls")
    with Client(router.url) as client:
        response = client.get("/v1/models")
        assert response.status == 400 and "https://" in response.json["error"]["message"]
        assert response["x-pointsman-error"] == "plain_http"
    with Client(router.url) as client:
        client.send(b"\x00\x01\x02 garbage that is no ClientHello\r\n\r\n")
        # An alert, or nothing, and the end.
        rest, _ = client.reader.rest()
        assert len(rest) in (0, 7)
    until(lambda: (failed("plain_http"), failed("not_tls")) == (plain + 1, other + 1))


class Dripping:
    """A handshake whose bytes the test moves."""

    def __init__(self, router, context):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        host, port = router.url.removeprefix("https://").split(":")
        self.sock = socket.create_connection((host, int(port)), timeout=20)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def hello(self):
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def call(self, function, *words):
        while True:
            try:
                done = function(*words)
            except ssl.SSLWantReadError:
                done = None
            for byte in self.outgoing.read():
                self.sock.sendall(bytes([byte]))
            if done is not None:
                return done
            self.incoming.write(self.sock.recv(65536))


def test_a_handshake_in_pieces_of_one_byte_is_served(tls_world, authority):
    _, router = tls_world
    drip = Dripping(router, client_context(authority))
    drip.call(lambda: drip.tls.do_handshake() or True)
    drip.call(drip.tls.write, b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b'"id": "m1"' in drip.call(drip.tls.read, 65536)
    drip.sock.close()


def test_a_slow_handshake_is_closed_and_a_flood_lets_others_in(start, authority, server):
    replica = start(Replica())
    router = start(
        Router([replica], listen_tls=listen_tls(server), timeouts={"client_head": "1s"})
    )
    context = client_context(authority)
    # Half of them silent, half of them within the handshake.
    flood = [Dripping(router, context) for _ in range(200)]
    for number, drip in enumerate(flood):
        if number % 2:
            drip.sock.sendall(drip.hello()[: 1 + number])
    with router.client(tls=context) as client:
        assert client.chat().response().status == 200
    for drip in flood:
        assert drip.sock.recv(100) == b""
        drip.sock.close()
    key = 'pointsman_tls_handshakes_failed_total{reason="timeout"}'
    until(lambda: router.metrics().get(key) == 200)
    assert router.metric("pointsman_client_connections") == 0


def test_clients_must_show_a_certificate_where_that_is_asked_for(start, authority, server, tmp_path):
    replica = start(Replica())
    tls = listen_tls(server, client_ca=str(authority.certificate))
    router = start(Router([replica], listen_tls=tls))
    code, _, error = curl(router, authority)
    assert code != 0 and "certificate required" in error, error
    other = Authority(tmp_path).client()
    for certificate, served in ((authority.client(), True), (other, False)):
        words = ["--cert", certificate.certificate, "--key", certificate.key]
        code, out, error = curl(router, authority, *words)
        assert ('"id": "m1"' in out) == served, error
    key = 'pointsman_tls_handshakes_failed_total{reason="certificate"}'
    until(lambda: router.metrics().get(key) == 2)


def peer_serial(router, authority):
    with router.client(tls=client_context(authority)) as client:
        assert client.chat().response().status == 200
        return client.sock.getpeercert()["serialNumber"]


def test_certificates_are_read_again_under_load(start, authority, tmp_path):
    files = authority.server("rolling")
    go_on = threading.Event()

    def script(connection, request):
        if b"stream" not in request.body:
            return connection.json(200, {"choices": []})
        connection.send(EVENT_STREAM + chunk(event("a")))
        go_on.wait(20)
        connection.send(chunk(event("b")) + b"0\r\n\r\n")

    replica = start(Replica(script))
    router = start(Router([replica], listen_tls=listen_tls(files)))
    first = peer_serial(router, authority)
    stop = threading.Event()

    def load():
        count = 0
        while not stop.is_set():
            peer_serial(router, authority)
            count += 1
        return count

    def replace(fresh):
        for name in ("certificate", "key"):
            os.replace(getattr(fresh, name), getattr(files, name))

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        loads = [pool.submit(load) for _ in range(3)]
        with router.client(tls=client_context(authority)) as held:
            held.chat(stream=True).head()
            replace(authority.server("fresh"))
            until(lambda: peer_serial(router, authority) != first, what="the new one is used")
            second = peer_serial(router, authority)
            # What cannot be used changes nothing.
            good = files.key.read_bytes()
            files.key.write_bytes(good[:50])
            key = "pointsman_tls_certificate_reloads_total"
            failed = f'{key}{{towards="clients",file="{files.certificate}",result="failed"}}'
            until(lambda: router.metrics()[failed] == 1, what="the broken one is noticed")
            assert peer_serial(router, authority) == second
            assert "holds no private key that can be used" in router.output()
            # At once, by a signal.
            files.key.write_bytes(good)
            replace(authority.server("fresh"))
            router.signal(signal.SIGHUP)
            until(lambda: peer_serial(router, authority) != second, what="the newest one is used")
            go_on.set()
            assert b'"b"' in held.reader.until(b"0\r\n\r\n")
        stop.set()
        assert all(future.result() > 0 for future in loads)
    expiry = 'pointsman_tls_certificate_expiry_timestamp_seconds{towards="clients",file="%s"}'
    left = router.metrics()[expiry % files.certificate] - time.time()
    assert 29 * 86400 < left <= 30 * 86400


# --- towards replicas ----------------------------------------------------------------------------


def test_replicas_are_spoken_to_by_tls_and_sessions_resumed(start, authority, server):
    replica = start(Replica(tls=server_context(server)))
    router = start(Router([replica], replica_tls={"ca": str(authority.certificate)}))
    router.wait_models()
    for _ in range(3):
        with router.client() as client:
            assert client.chat().response().status == 200
    assert replica.connections > 3  # with those of probes; requests share one
    assert router.metric("pointsman_upstream_connections_reused_total") == 2
    # A connection that the replica has ended is replaced, and the new one goes on with the session.
    for number in range(3):
        replica.requests[-1].connection.close()
        with router.client() as client:
            assert client.chat().response().status == 200, number
        assert replica.requests[-1].resumed
    assert not replica.handshake_errors


def test_a_replica_with_a_bad_certificate_is_left_out_and_told_why(start, authority, tmp_path):
    good = start(Replica(tls=server_context(authority.server("good"))))
    bad = {
        "certificate has expired": authority.server("expired", days=-1),
        "IP address mismatch": authority.server("misnamed", names=("DNS:models.test",)),
        "unable to get local issuer certificate": Authority(tmp_path).server("foreign"),
    }
    replicas = {why: start(Replica(tls=server_context(made))) for why, made in bad.items()}
    urls = [good.url, *[replica.url for replica in replicas.values()]]
    router = start(
        Router(urls, "round_robin", replica_tls={"ca": str(authority.certificate)}, health={
            "interval": "50ms"
        })
    )
    for _ in range(8):
        with router.client() as client:
            assert client.chat().response().status == 200
    assert len(good.requests) == 8
    for why, replica in replicas.items():
        until(
            lambda port=str(replica.port), why=why: any(
                port in line and why in line for line in router.output().splitlines()
            ),
            what=why,
        )


def test_a_failed_handshake_is_tried_elsewhere(start, authority, server, tmp_path):
    turning = start(Replica(tls=server_context(server)))
    good = start(Replica(tls=server_context(server)))
    router = start(
        Router(
            [turning, good],
            "round_robin",
            replica_tls={"ca": str(authority.certificate)},
            health={"interval": "1h"},
            signals={"interval": "1h"},
        )
    )
    router.wait_models()
    # Ready by its probe; from now on it shows another certificate.
    expired = authority.server("turned", days=-1)
    turning.tls = server_context(expired)
    for _ in range(4):
        with router.client() as client:
            assert client.chat().response().status == 200
    assert len(good.requests) == 4
    metrics = router.metrics()
    assert metrics['pointsman_upstream_tls_failures_total{reason="certificate"}'] >= 1
    assert metrics['pointsman_retries_total{reason="refused"}'] >= 1
    assert f"replica {turning.url}: TLS: certificate has expired" in router.output()
    # With no other one, the client is told.
    good.close()
    with router.client() as client:
        response = client.chat().response()
    assert response.status in (502, 503)


def test_what_was_cut_does_not_pass_for_whole(start, authority, server):
    def script(connection, request):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhalf of it")
        connection.end() if b"whole" in request.body else connection.close()

    replica = start(Replica(script, tls=server_context(server)))
    router = start(Router([replica], replica_tls={"ca": str(authority.certificate)}))
    router.wait_models()
    with router.client() as client:
        response = client.chat(text="whole").response()
        assert response.complete and response.body == b"half of it"
    with router.client() as client:
        client.chat(text="cut")
        try:
            complete = client.response().complete
        except Gone:
            complete = False
    assert not complete


def test_names_own_certificates_and_insecure_replicas(start, authority, server, tmp_path):
    named = start(Replica(tls=server_context(authority.server("n", names=("DNS:models.test",)))))
    asking = start(Replica(tls=server_context(server, ca=authority)))
    foreign = start(Replica(tls=server_context(Authority(tmp_path).server())))
    own = authority.client("router")
    router = start(
        Router(
            [
                {"url": named.url, "tls_name": "models.test"},
                {
                    "url": asking.url,
                    "tls_certificate": str(own.certificate),
                    "tls_key": str(own.key),
                },
                {"url": foreign.url, "tls_insecure": True},
            ],
            "round_robin",
            replica_tls={"ca": str(authority.certificate)},
        )
    )
    for _ in range(6):
        with router.client() as client:
            assert client.chat().response().status == 200
    assert [len(replica.requests) for replica in (named, asking, foreign)] == [2, 2, 2]
    assert "its certificate is not verified (insecure)" in router.output()
    expiry = 'pointsman_tls_certificate_expiry_timestamp_seconds{towards="replicas",file="%s"}'
    assert router.metrics()[expiry % own.certificate] > time.time()


def check(path):
    return subprocess.run([POINTSMAN, "check", path], capture_output=True, text=True, timeout=60)


def test_check_names_file_line_and_key(authority, server, tmp_path):
    path = tmp_path / "p.yaml"

    def fault(text):
        path.write_text(text)
        result = check(path)
        assert result.returncode == 1, result.stdout
        return result.stderr.strip()

    replicas = "replicas: [http://a:1]\n"
    assert fault(f"{replicas}listen_tls:\n  certificate: /none\n") == (
        f"{path}:3: listen_tls.certificate: '/none' cannot be read: No such file or directory"
    )
    assert fault(f"{replicas}listen_tls: {{key: /none}}\n") == (
        f"{path}:2: listen_tls.key: is of no use without listen_tls.certificate"
    )
    other = authority.server("other")
    text = f"listen_tls:\n  certificate: {server.certificate}\n  key: {other.key}\n"
    assert fault(replicas + text) == (
        f"{path}:4: listen_tls.key: '{other.key}' does not belong to the certificate in "
        f"'{server.certificate}'"
    )
    text = f"listen_tls:\n  certificate: {server.certificate}\n  key: {server.key}\n  client_ca: /x\n"
    assert f"{path}:5: listen_tls.client_ca: '/x' cannot be read" in fault(replicas + text)
    assert f"{path}:2: replica_tls.ca: '/x' cannot be read" in fault(
        "replicas: [https://a:1, https://b:1]\nreplica_tls: {ca: /x}\n"
    )
    assert f"{path}:3: replicas[0].tls_ca: '/x' cannot be read" in fault(
        "replicas:\n  - url: https://a:1\n    tls_ca: /x\n"
    )
    assert "are for https:// URLs" in fault("replicas:\n  - {url: 'http://a:1', tls_ca: /x}\n")

    old = authority.server("old", days=-1)
    path.write_text(
        f"{replicas}listen_tls: {{certificate: {old.certificate}, key: {old.key}}}\n"
    )
    result = check(path)
    assert result.returncode == 0 and f"'{old.certificate}' has expired" in result.stdout
    path.write_text("replicas: [{url: 'https://a:1', tls_insecure: true}, 'https://b:1']\n")
    assert "https://a:1: its certificate is not verified" in check(path).stdout
