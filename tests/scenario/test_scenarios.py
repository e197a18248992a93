"""Runs the scenario files of this folder; README.md describes their form."""

import pathlib
import threading

import pytest
import yaml

from support.processes import until
from support.router import Router
from support.wire import Replica, chat_body, chunk, event

FILES = sorted(pathlib.Path(__file__).resolve().parent.glob("*.yaml"))


class Script:
    """Gives each request, on whichever replica, the steps of its turn."""

    def __init__(self, tries):
        self.tries = tries
        self.count = 0
        self.lock = threading.Lock()

    def __call__(self, connection, request):
        with self.lock:
            steps = self.tries[min(self.count, len(self.tries) - 1)]
            self.count += 1
        for step in steps:
            self.play(connection, step)

    def play(self, connection, step):
        fields = list(step.get("headers", {}).items())
        if "head" in step:
            if step.get("chunked"):
                fields.append(("Transfer-Encoding", "chunked"))
            lines = [f"HTTP/1.1 {step['head']} Status", *(f"{n}: {v}" for n, v in fields), "", ""]
            connection.send("\r\n".join(lines).encode())
        elif "json" in step:
            connection.json(step.get("status", 200), step["json"], fields)
        elif "text" in step:
            connection.text(step.get("status", 200), step["text"].encode(), fields)
        elif "send" in step:
            connection.send(step["send"].encode())
        elif "chunk" in step:
            connection.send(chunk(step["chunk"].encode()))
        elif "event" in step:
            connection.send(chunk(event(step["event"])))
        elif "end" in step:
            connection.send(b"0\r\n\r\n")
        elif "close" in step:
            connection.close()
        elif "reset" in step:
            connection.reset()
        elif "wait" in step:
            connection.wait_closed(60)
        else:
            raise ValueError(f"unknown step {step}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario(file, start):
    scenario = yaml.safe_load(file.read_text())
    script = Script(scenario["tries"])
    replicas = [start(Replica(script)) for _ in range(scenario.get("replicas", 2))]
    router = start(Router(replicas, **scenario.get("router", {})))
    asked, expect = scenario["client"], scenario["expect"]
    with router.client() as client:
        body = asked["text"].encode() if "text" in asked else asked.get("json", chat_body())
        client.post(asked["post"], body, list(asked.get("headers", {}).items()))
        response = client.response()

    seen = response.raw_head + response.raw_body
    assert response.status == expect["status"], seen
    assert response.complete == expect.get("complete", True), seen
    if "json" in expect:
        assert response.json == expect["json"]
    if "text" in expect:
        assert response.body.decode() == expect["text"]
    for text in listed(expect, "contains"):
        assert text.encode() in response.raw_body
    for text in listed(expect, "lacks"):
        assert text.encode() not in response.raw_body
    for name, value in expect.get("headers", {}).items():
        assert response[name] == value
    if "tries" in expect:
        assert script.count == expect["tries"]
    if "replicas" in expect:
        assert sum(bool(replica.requests) for replica in replicas) == expect["replicas"]
    until(lambda: router.metric("pointsman_requests_in_flight") == 0, what="nothing in flight")


def listed(expect, key):
    value = expect.get(key, [])
    return [value] if isinstance(value, str) else value
