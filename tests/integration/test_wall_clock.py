"""A wall clock that jumps, as one does that is set right: it stands in the logs, and nothing else
follows it."""

import datetime
import json
import shutil
import struct
import subprocess
import time

import pytest
from support.processes import ROOT, until
from support.router import Router
from support.wire import DONE, EVENT_STREAM, Client, Replica, chunk, event

DAY_S = 24 * 3600


class MovedClock:
    """The wall clock of the programs that are started with `environment`."""

    def __init__(self, folder):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if not compiler:
            pytest.skip("no C compiler")
        library = folder / "wall_clock.so"
        source = ROOT / "tests/support/wall_clock.c"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        self._file = folder / "moved_by"
        self._file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(self._file)}

    def move(self, seconds):
        """In place: the programs have the file mapped."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))


@pytest.mark.parametrize("jump_s", [-DAY_S, DAY_S], ids=["back", "ahead"])
def test_only_the_logs_follow_it(start, tmp_path, jump_s):
    clock = MovedClock(tmp_path)

    def script(connection, request):
        if b'"stream": true' not in request.body:
            return connection.json(200, {"id": "c1"})
        connection.send(EVENT_STREAM + chunk(event("before")))
        until(lambda: jumped, what="the jump")
        connection.send(chunk(event("after")) + chunk(DONE) + b"0\r\n\r\n")

    jumped = []
    replica = start(Replica(script))
    replica.metrics = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"
    log = tmp_path / "access.log"
    router = start(Router([replica], log={"access": str(log)}, environment=clock.environment))
    admin = start(Client(router.urls["admin"]))

    def push(timestamp):
        report = {"replica": replica.url, "signals": {"waiting": 2}, **timestamp}
        return admin.post("/v1/signals", report).response()

    kept, streaming = start(router.client()), start(router.client())
    assert kept.chat().response().status == 200
    streaming.chat(stream=True)
    streaming.head()
    assert b"before" in streaming.reader.until(b"\n\n")
    until(lambda: router.metric("pointsman_replica_report_age_seconds") < 5, what="a report")

    clock.move(jump_s)
    jumped.append(True)
    # What runs goes on to its end, and connections are kept.
    rest = streaming.reader.until(b"0\r\n\r\n")
    assert b"after" in rest and b"[DONE]" in rest
    assert kept.chat().response().status == 200
    # Probes and scrapes go on, and what they found is as old as it is.
    replica.wait_probes(len(replica.probes) + 3)
    (seen,) = admin.get("/v1/replicas").json["replicas"]
    assert seen["usable"] and seen["state"] == "ready"
    assert 0 <= router.metric("pointsman_replica_report_age_seconds") < 30
    assert 0 < router.metric("pointsman_request_duration_seconds_sum") < 60
    assert router.metric("pointsman_requests_total") == 3

    # A report that is pushed says by another clock when it was made: what cannot be is refused.
    assert push({}).status == 200
    assert push({"timestamp": time.time() + jump_s}).status == 200
    refused = push({"timestamp": time.time()})
    assert refused.status == 400
    assert ("future" if jump_s < 0 else "older") in refused.json["error"]["message"]

    lines = until(
        lambda: len(log.read_text().splitlines()) == 3 and log.read_text().splitlines(),
        what="three lines",
    )
    first, second, last = map(json.loads, lines)
    for line in (first, second, last):
        assert 0 <= line["whole_ms"] < 60_000
        assert 0 <= line.get("ttft_ms", 0) < 60_000

    def at(line):
        return datetime.datetime.fromisoformat(line["at"].replace("Z", "+00:00")).timestamp()

    assert abs(at(first) - time.time()) < 600
    assert abs(at(last) - time.time() - jump_s) < 600
