"""`pointsman demo`: the table, its file, and that nothing stays behind."""

import json
import os
import pathlib
import select
import signal
import subprocess

import pytest
from support.processes import POINTSMAN, until


def children_of(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def ends_within(watched, limit_s):
    """Whether the process behind that descriptor ends in time."""
    poller = select.poll()
    poller.register(watched, select.POLLIN)
    return bool(poller.poll(limit_s * 1000))


def test_measures_each_policy_and_writes_what_it_prints(tmp_path):
    result = subprocess.run(
        [POINTSMAN, "demo", "--requests", "200", "--speed", "30", "--json", tmp_path / "demo.json"]
        + ["--arms", "round_robin,affinity,segregation"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert result.returncode == 0, result.stderr
    arms = json.loads((tmp_path / "demo.json").read_text())["arms"]
    assert [arm["name"] for arm in arms] == ["round_robin", "affinity", "segregation"]
    for arm in arms:
        assert arm["measured"] == 200 and arm["failed"] == 0
        for quantile in (arm["ttft_p50_s"], arm["ttft_p99_s"]):
            assert 0 < quantile["low"] <= quantile["value"] <= quantile["high"]
        assert arm["completions_per_s"] > 0
    # Round robin finds the turn before on one replica of eight; a session's home has it always.
    assert arms[0]["hit_rate"] < 0.25 < arms[1]["hit_rate"]
    assert "round robin" in result.stdout and "(1.00x)" in result.stdout


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ends_its_router_when_it_is_ended(how, tmp_path):
    demo = subprocess.Popen(
        [POINTSMAN, "demo", "--arms", "round_robin"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        (router,) = until(lambda: children_of(demo.pid), what="the router is started")
        watched = os.pidfd_open(router)
        demo.send_signal(how)
        demo.wait(timeout=20)
        assert ends_within(watched, 30), "the router outlived the demo"
        os.close(watched)
    finally:
        demo.kill()
        demo.wait()
    if how != signal.SIGKILL:
        assert demo.returncode == 130
        assert not list(tmp_path.iterdir())


def test_measures_2000_requests_with_each_of_six_policies_unless_told_otherwise():
    text = subprocess.run(
        [POINTSMAN, "demo", "--help"], capture_output=True, text=True, timeout=20
    ).stdout
    (requests,) = [line for line in text.splitlines() if "--requests" in line]
    assert "=2000" in requests
    arms = "round_robin,least_connections,least_kv,affinity,segregation,least_work"
    assert arms in text.replace(" ", "").replace("\n", "")


def test_names_the_policies_it_knows():
    result = subprocess.run(
        [POINTSMAN, "demo", "--arms", "fastest"], capture_output=True, text=True, timeout=20
    )
    assert result.returncode != 0
    assert "round_robin" in result.stderr + result.stdout
