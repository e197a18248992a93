"""Keys of clients, as people and their programs use them: made, shown, changed, limited, never told."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading

import openai
import pytest
from support.processes import POINTSMAN, until
from support.router import Router
from support.wire import DONE, Replica, event

CHAT = "/v1/chat/completions"
ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m1",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    ],
}


def run_key(*words, key=None):
    return subprocess.run(
        [POINTSMAN, "key", *map(str, words)], input=key, capture_output=True, text=True, timeout=60
    )


def bearer(key):
    return [("Authorization", f"Bearer {key}")]


def line(name, key, rest=""):
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()}{rest}\n"


class World:
    """A router with keys before one replica, and where it writes."""

    def __init__(self, folder, keys, **access):
        self.file = folder / "keys"
        self.file.write_text(keys)
        self.log = folder / "access.log"
        self.replica = Replica(lambda connection, _: connection.json(200, ANSWER))
        self.router = Router(
            [self.replica],
            threads=2,
            access={"key_file": str(self.file), **access},
            log={"access": str(self.log)},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.router.__exit__(None, None, None)
        self.replica.__exit__(None, None, None)

    def replace(self, keys):
        new = self.file.with_suffix(".new")
        new.write_text(keys)
        os.replace(new, self.file)

    def status(self, key):
        with self.router.client() as client:
            return client.chat(fields=bearer(key)).response().status

    def lines(self, count):
        until(lambda: self.log.read_text().count("\n") >= count, what=f"{count} lines")
        return [json.loads(text) for text in self.log.read_text().splitlines()]


# --- making keys ---------------------------------------------------------------------------------


def test_a_key_that_was_made_lets_in(tmp_path):
    made = run_key("alice", "--concurrent", 3)
    key, text = re.fullmatch(r"key:  (pm-\S{43})\nline: (\S+)\n", made.stdout).groups()
    assert text == line("alice", key, ":concurrent=3").strip()
    with World(tmp_path, text + "\n") as world:
        assert world.status(key) == 200
        assert world.status(key[:-1]) == 401


def test_keys_are_appended_to_a_file_and_only_the_key_is_printed(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# clients")
    one = run_key("alice", "--append", file)
    two = run_key("bob", "--append", file)
    keys = [one.stdout.strip(), two.stdout.strip()]
    assert keys[0] != keys[1]
    assert file.read_text() == "# clients\n" + line("alice", keys[0]) + line("bob", keys[1])
    refused = run_key("alice", "--append", file, "--concurrent", 2)
    assert refused.returncode == 1
    assert f"{file}:4: has another `concurrent`" in refused.stderr
    assert refused.stdout == ""
    assert file.read_text().count("\n") == 3


def test_a_key_that_clients_have_already_is_taken_from_standard_input():
    assert run_key("old", "--stdin", key="sk-in-use\n").stdout == line("old", "sk-in-use")
    assert run_key("old", "--stdin", key="").returncode == 1
    assert run_key("no name", "--stdin", key="k").returncode == 1


@pytest.mark.parametrize("program", ["sha256sum", "openssl"])
def test_lines_are_made_with_what_every_system_has(tmp_path, program):
    if not shutil.which(program):
        pytest.skip(f"no {program} here")
    command = {"sha256sum": "sha256sum", "openssl": "openssl dgst -sha256 -r"}[program]
    text = f"echo alice:$(printf %s my-key | {command} | cut -c 1-64)"
    made = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True).stdout
    assert made == line("alice", "my-key")


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_bad_file_is_told_with_its_line_and_without_its_text(tmp_path, command):
    file = tmp_path / "keys"
    file.write_text("# a slip\nalice:pm-the-key-itself\n")
    config = tmp_path / "pointsman.yaml"
    config.write_text(f"replicas: ['http://127.0.0.1:9']\naccess: {{key_file: {file}}}\n")
    done = subprocess.run(
        [POINTSMAN, command, "-c", config], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"access.key_file: {file}:2: has no SHA-256" in done.stderr
    assert "the-key-itself" not in done.stdout + done.stderr


# --- clients -------------------------------------------------------------------------------------


def test_the_official_client_with_and_without_its_key(tmp_path):
    with World(tmp_path, line("alice", "k-alice")) as world:

        def ask(key):
            client = openai.OpenAI(base_url=world.router.url + "/v1", api_key=key, max_retries=0)
            return client.chat.completions.create(
                model="m1", messages=[{"role": "user", "content": "hi"}]
            )

        assert ask("k-alice").choices[0].message.content == "yes"
        with pytest.raises(openai.AuthenticationError) as refused:
            ask("k-wrong")
        assert refused.value.code == "invalid_api_key"
        assert world.replica.requests[0]["authorization"] is None
        assert len(world.replica.requests) == 1


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_curl_with_either_header(tmp_path):
    with World(tmp_path, line("alice", "k-alice")) as world:

        def ask(*words):
            url = world.router.url + "/v1/models"
            command = ["curl", "-s", "-w", "%{http_code}", "-o", "/dev/null", *words, url]
            return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout

        assert ask("-H", "Authorization: Bearer k-alice") == "200"
        assert ask("-H", "x-api-key: k-alice") == "200"
        assert ask("--oauth2-bearer", "k-alice") == "200"
        assert ask("-u", "k:alice") == "401"
        assert ask() == "401"


def test_the_official_client_meets_the_limit_and_waits(tmp_path):
    started, gate = threading.Semaphore(0), threading.Event()

    def script(connection, request):
        if not json.loads(request.body).get("stream"):
            return connection.json(200, ANSWER)
        connection.stream([event("a")], end=False)
        started.release()
        gate.wait(20)
        connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(DONE), DONE))

    with World(tmp_path, line("alice", "k", ":concurrent=2")) as world:
        world.replica.script = script
        held = [world.router.client().chat(stream=True, fields=bearer("k")) for _ in range(2)]
        for _ in held:
            assert started.acquire(timeout=20)
        arguments = {"model": "m1", "messages": [{"role": "user", "content": "hi"}]}
        impatient = openai.OpenAI(base_url=world.router.url + "/v1", api_key="k", max_retries=0)
        with pytest.raises(openai.RateLimitError) as refused:
            impatient.chat.completions.create(**arguments)
        assert refused.value.response.headers["retry-after"] == "1"
        assert refused.value.code == "rate_limit_exceeded"
        threading.Timer(0.2, gate.set).start()
        patient = openai.OpenAI(base_url=world.router.url + "/v1", api_key="k", max_retries=5)
        assert patient.chat.completions.create(**arguments).id == "c1"
        for client in held:
            client.close()
        until(
            lambda: world.router.metrics()['pointsman_key_requests_in_flight{key="alice"}'] == 0,
            what="no request is counted any more",
        )
        metrics = world.router.metrics()
        assert metrics['pointsman_key_requests_total{key="alice"}'] == 3
        assert metrics['pointsman_key_requests_refused_total{key="alice"}'] >= 1


# --- changes -------------------------------------------------------------------------------------


def test_changed_keys_count_within_seconds_and_on_sighup_at_once(tmp_path):
    with World(tmp_path, line("alice", "k-one")) as world:
        assert (world.status("k-one"), world.status("k-two")) == (200, 401)
        world.replace(line("alice", "k-two"))
        until(lambda: world.status("k-two") == 200, what="the new key lets in")
        assert world.status("k-one") == 401
        world.replace(line("alice", "k-two") + "\nbob\n")
        until(lambda: "keys:3: has no colon" in world.router.output(), what="the fault is told")
        assert world.status("k-two") == 200
        world.replace(line("alice", "k-three"))
        world.router.signal(signal.SIGHUP)
        until(lambda: world.status("k-three") == 200, what="the newest key lets in")
        assert world.status("k-two") == 401
        metrics = world.router.metrics()
        assert metrics['pointsman_key_file_reads_total{result="failed"}'] >= 1
        assert metrics["pointsman_keys"] == 1


# --- what is never told --------------------------------------------------------------------------


def test_names_are_logged_and_keys_are_nowhere(tmp_path):
    with World(tmp_path, line("alice", "k-alice") + line("bob", "k-bob")) as world:
        for key in ("k-alice", "k-bob", "k-wrong"):
            world.status(key)
        with world.router.client() as client:
            client.post(CHAT + "?api_key=k-query", b"{}", [("x-api-key", "k-alice")]).response()
        lines = world.lines(4)
        # Each thread writes its own lines down, so they come in any order.
        assert sorted((one.get("key", ""), one["status"], one.get("error", "")) for one in lines) == [
            ("", 401, "wrong_key"),
            ("alice", 200, ""),
            ("alice", 200, ""),
            ("bob", 200, ""),
        ]
        metrics = "\n".join(world.router.metrics())
        for text in (world.log.read_text(), world.router.output(), metrics):
            assert not re.search(r"k-(alice|bob|wrong|query)", text)
        assert all(not one["x-api-key"] for one in world.replica.requests)


def test_a_bad_secret_of_the_configuration_is_not_repeated(tmp_path):
    config = tmp_path / "pointsman.yaml"
    config.write_text("replicas: ['http://127.0.0.1:9']\nadmin_access: {key: 'k with blanks'}\n")
    done = subprocess.run(
        [POINTSMAN, "check", "-c", config], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "admin_access.key" in done.stderr
    assert "blanks" not in done.stdout + done.stderr


def test_many_names_make_a_bounded_number_of_series(tmp_path):
    keys = "".join(line(f"n{i}", f"k{i}") for i in range(300))
    with World(tmp_path, keys) as world:
        for number in (0, 299):
            assert world.status(f"k{number}") == 200
        series = {
            name: value
            for name, value in world.router.metrics().items()
            if name.startswith("pointsman_key_requests_total")
        }
        assert len(series) == 201
        assert series['pointsman_key_requests_total{key="n0"}'] == 1
        assert series['pointsman_key_requests_total{key="(others)"}'] == 1
