"""The decision log of `pointsman serve`, from requests to the simulator that replays them."""

import collections
import concurrent.futures
import json
import random
import subprocess

import pytest

from support.processes import POINTSMAN, Listening
from support.router import Router
from support.wire import Client, Replica

SPEED = 50  # Engine seconds per second.
REPLICAS = 4
SESSIONS, TURNS = 40, 4


def simulate(*words):
    return subprocess.run(
        [POINTSMAN, "simulate", *map(str, words)], capture_output=True, text=True, timeout=300
    )


def words_of(rng, count):
    return " ".join(f"w{rng.randrange(10**6)}" for _ in range(count))


def converse(url, number, systems):
    """One client's turns, each with all that was said before."""
    rng = random.Random(number)
    messages = [{"role": "system", "content": systems[number % len(systems)]}]
    with Client(url) as client:
        for _ in range(TURNS):
            messages.append({"role": "user", "content": words_of(rng, rng.randrange(40, 400))})
            body = {"model": "sim", "messages": messages, "max_tokens": rng.randrange(20, 120)}
            client.post(
                "/v1/chat/completions",
                json.dumps(body).encode(),
                [("x-session-id", f"person-{number}")],
            )
            answer = client.response()
            assert answer.status == 200
            messages.append(answer.json["choices"][0]["message"])


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log of some conversations over four simulated replicas, and its lines."""
    path = tmp_path_factory.mktemp("log") / "decisions.log"
    systems = [words_of(random.Random(seed), 300) for seed in (1001, 1002)]
    command = [POINTSMAN, "replica", "--listen", "127.0.0.1:0", "--speed", SPEED]
    replicas = [Listening(command) for _ in range(REPLICAS)]
    settings = {"decision_log": {"path": str(path), "key": "k-of-the-log"}, "threads": 2}
    try:
        with Router(replicas, policy="session_affinity", **settings) as router:
            router.wait_models()
            with concurrent.futures.ThreadPoolExecutor(8) as clients:
                runs = [clients.submit(converse, router.url, n, systems) for n in range(SESSIONS)]
                for run in runs:
                    run.result()
            assert router.metric("pointsman_decision_log_lines_dropped_total") == 0
            router.stop()
    finally:
        for replica in replicas:
            replica.kill()
    text = path.read_text()
    header, *lines = map(json.loads, text.splitlines())
    return path, text, header, lines


def test_every_request_has_its_line_and_no_text_of_it(log):
    path, text, header, lines = log
    assert header["pointsman_decision_log"] == 1
    assert [line["n"] for line in lines] == list(range(SESSIONS * TURNS))
    sessions = collections.Counter(line["session"] for line in lines)
    assert list(sessions.values()) == [TURNS] * SESSIONS
    homes = {(line["session"], line["replica"]) for line in lines if line["reason"] == "session"}
    assert len(homes) <= SESSIONS
    for line in lines:
        assert (line["status"], line["tries"], line["model"]) == (200, 1, "sim")
        assert 0 < line["cached_tokens"] + 1 <= line["prompt_tokens"]
        assert 0 < line["output_tokens"] <= line["max_tokens"]
        assert line["whole_ms"] > 0
        shared = line.get("prefix", [0, 0])[1]
        assert len(line.get("hashes", "")) == 16 * (line["blocks"] - shared)
        assert line["blocks"] * header["block_tokens"] <= line["estimated_tokens"]
    for hidden in ("w1", "person-", "k-of-the-log", "assistant"):
        assert hidden not in text
    # Half of all blocks at least were said before, and cost nothing.
    assert sum(len(line.get("hashes", "")) for line in lines) < 8 * sum(l["blocks"] for l in lines)


def scenario(tmp_path, trace):
    file = tmp_path / "fleet.yaml"
    file.write_text(
        f"arrivals: {{kind: trace, trace: {trace}, trace_speed: {1 / SPEED}}}\n"
        f"replicas: [{{count: {REPLICAS}, engine: 8b_a100}}]\n"
        "measure: {warm_up: 0}\n"
    )
    return file


def test_the_simulator_replays_it_with_its_sharing(log, tmp_path):
    path, _, _, lines = log
    report = tmp_path / "run.json"
    file = scenario(tmp_path, "another.log")
    words = ["--trace", path, "--policy", "session_affinity,round_robin", "--seeds", 3, "--json", report]
    done = simulate("run", file, *words)
    assert done.returncode == 0, done.stderr
    affinity, spread = json.loads(report.read_text())["rows"]
    assert affinity["requests"] == len(lines)
    # The engines' own count, of the same policy over the same engines.
    real = sum(l["cached_tokens"] for l in lines) / sum(l["prompt_tokens"] for l in lines)
    assert 0.5 < real < 0.9
    assert affinity["prefix_hit_rate"] == pytest.approx(real, abs=0.03)
    assert spread["prefix_hit_rate"] < real - 0.1


def test_tune_and_calibrate_take_it(log, tmp_path):
    path, *_ = log
    short = simulate("tune", scenario(tmp_path, path), "--quick")
    assert short.returncode == 1
    assert f"{path}: has {SESSIONS * TURNS} requests to replay, too few" in short.stderr
    twice = tmp_path / "twice.log"
    twice.write_text(path.read_text() * 2)
    done = simulate("tune", scenario(tmp_path, twice), "--quick", "--seeds", 2)
    assert done.returncode == 0, done.stderr
    assert "policy: " in done.stdout
    plain = simulate("calibrate", path)
    assert plain.returncode == 1
    assert f"{SESSIONS * TURNS} not streamed" in plain.stderr


def test_logs_of_several_routers_go_together_where_they_have_the_same_key(tmp_path):
    """Whatever the seeds of the routers, and though each starts its numbers and hashes anew."""
    told, text = {}, words_of(random.Random(7), 200)
    body = {"model": "m1", "messages": [{"role": "user", "content": text}], "max_tokens": 9}
    for name, key, seed in (("a", "k", 1), ("b", "k", 2), ("c", "another", 1)):
        path = tmp_path / f"{name}.log"
        settings = {"decision_log": {"path": str(path), "key": key}, "seed": seed}
        with Replica() as replica, Router([replica], policy="least_work", **settings) as router:
            router.wait_models()
            with Client(router.url) as client:
                client.post(
                    "/v1/chat/completions", json.dumps(body).encode(), [("x-session-id", "one")]
                )
                assert client.response().status == 200
            router.stop()
        line = json.loads(path.read_text().splitlines()[1])
        assert line["blocks"] > 3
        told[name] = line["session"], line["hashes"]
    assert told["a"] == told["b"]
    assert told["a"][0] != told["c"][0] and told["a"][1] != told["c"][1]


def test_a_broken_line_is_told_with_its_place(log, tmp_path):
    path, text, *_ = log
    broken = tmp_path / "broken.log"
    lines = text.splitlines()
    lines[4] = lines[4].replace('"estimated_tokens":', '"estimated_tokens":-')
    broken.write_text("\n".join(lines))
    done = simulate("run", scenario(tmp_path, broken), "--policy", "round_robin")
    assert done.returncode == 1
    assert f'{broken}:5: is no line of the decision log' in done.stderr
