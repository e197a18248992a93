"""The bench's own arithmetic, what it does about lost answers, and that it runs at all."""

import json
import shutil
import subprocess
import sys

import pytest
from bench.end_to_end import cases, proxies, report
from bench.end_to_end import run as bench
from support.processes import ROOT, Listening

RUN = ROOT / "tests/bench/end_to_end/run.py"
JSON_US = report.Measure("json", "us", "µs")
OPEN_P50 = report.Measure("open", "p50_us", "added", added=True)

needs_programs = pytest.mark.skipif(
    not all((proxies.BUILD / name).exists() for name in ("bench_load", "bench_replica", "pointsman")),
    reason="bench_load, bench_replica or pointsman is not built",
)


def record(case, proxy, number, failed=None, **figures):
    base = {"case": case, "proxy": proxy, "round": number}
    return base | ({"failed": failed} if failed else {"figures": figures})


def test_a_ratio_is_taken_in_each_round_and_not_of_the_medians():
    records = [record("json", "haproxy", n, us=us) for n, us in enumerate([10, 20, 40])]
    records += [record("json", "own", n, us=us) for n, us in enumerate([20, 10, 20])]
    figures = report.Figures(records)
    assert figures.ratio(JSON_US, "own") == 0.5  # of 2, 0.5 and 0.5; the medians give 1
    assert figures.cell(JSON_US, "own") == "20.0 (10.0–20.0) 0.50×"


def test_one_bad_round_fails_the_cell_and_no_median_is_shown():
    records = [record("json", "haproxy", n, us=10) for n in range(3)]
    records += [record("json", "own", 0, us=1), record("json", "own", 1, failed="7 errors")]
    records += [record("json", "own", 2, us=1)]
    figures = report.Figures(records)
    assert figures.cell(JSON_US, "own") == "failed"
    assert figures.ratio(JSON_US, "own") is None
    assert figures.failure("json", "own") == "1 of 3 rounds: 7 errors"


def test_nothing_is_compared_with_a_haproxy_that_failed():
    records = [record("json", "haproxy", 0, failed="gone"), record("json", "own", 0, us=8)]
    assert report.Figures(records).cell(JSON_US, "own") == "8.0"


def test_what_is_added_is_told_from_the_same_round_without_a_proxy():
    records = [record("open", "direct", n, p50_us=us) for n, us in enumerate([100, 300])]
    records += [record("open", "haproxy", n, p50_us=us) for n, us in enumerate([200, 500])]
    records += [record("open", "own", n, p50_us=us) for n, us in enumerate([150, 400])]
    figures = report.Figures(records)
    assert figures.values(OPEN_P50, "own") == [50, 100]
    assert figures.ratio(OPEN_P50, "own") == 0.5
    without = report.Figures([r for r in records if r["proxy"] != "direct"])
    assert without.cell(OPEN_P50, "own") == ""


def test_the_load_generators_errors_are_a_failure_and_never_a_figure():
    class Alive:
        def alive(self):
            return True

    whole = {"requests": 5, "errors": 0, "why": ""}
    lost = {"requests": 500, "errors": 1, "why": "16 events, not 17"}
    assert cases.checked(Alive(), json.dumps(whole), "", 0) == whole
    with pytest.raises(cases.Failed, match="16 events, not 17"):
        cases.checked(Alive(), json.dumps(lost), "", 1)
    with pytest.raises(cases.Failed, match="no request"):
        cases.checked(Alive(), json.dumps(whole | {"requests": 0}), "", 0)
    with pytest.raises(cases.Failed, match="refused"):
        cases.checked(Alive(), "", "connect: refused", 2)


def test_peers_that_are_not_installed_are_left_out_with_the_reason(monkeypatch, tmp_path):
    monkeypatch.setattr(proxies, "ROOT", tmp_path)
    monkeypatch.setattr(proxies, "PEERS", tmp_path / "peers")
    for name in ("envoy", "vllm-router", "sglang-router", "smg"):
        with pytest.raises(proxies.Unavailable, match="is not installed in peers/"):
            proxies.Proxy(name, tmp_path, [1])


def test_a_peer_that_does_not_start_is_left_out_with_its_last_words(monkeypatch, tmp_path):
    def plan(folder, replicas, port, tls):
        return ["sh", "-c", "echo no such luck; exit 3"], {}, "1"

    monkeypatch.setitem(proxies.PLANS, "broken", plan)
    with pytest.raises(proxies.Unavailable, match="does not start: no such luck"):
        proxies.Proxy("broken", tmp_path, [1])


def test_a_proxy_that_ended_fails_in_every_later_case(tmp_path):
    class Ended:
        name = "gone"

        def alive(self):
            return False

    rig = cases.Rig([1], tmp_path, 0.1)
    for case in cases.CASES:
        assert bench.measure(rig, case, Ended()) == {"failed": "the proxy has ended"}


@needs_programs
def test_the_load_generator_misses_an_event_that_a_stream_lacks(tmp_path):
    with Listening([proxies.BUILD / "bench_replica"]) as replica:
        port = int(replica.url.rsplit(":", 1)[1])
        rig = cases.Rig([port], tmp_path, 0.1)
        cases.set_pace(rig, events=3, interval_us=100)
        load = [proxies.BUILD / "bench_load", "--port", port, "--stream", 1, "--seconds", 0.1]
        load += ["--connections", 2, "--events"]
        for events, errors in ((4, False), (5, True)):
            run = subprocess.run(list(map(str, [*load, events])), capture_output=True, text=True)
            result = json.loads(run.stdout)
            assert (result["errors"] > 0) == errors == (run.returncode != 0)
            assert (result["why"] == "4 events, not 5") == errors
            assert (result["requests"] > 0) != errors


@needs_programs
@pytest.mark.skipif(not shutil.which("taskset"), reason="taskset is not installed")
def test_the_bench_runs_and_stores_what_it_prints(tmp_path):
    wanted = ["least_work", "haproxy", "envoy"]
    command = [sys.executable, RUN, "--only", ",".join(wanted), "--cases", "json,first,open"]
    command += ["--rounds", 1, "--seconds", 0.2, "--json", tmp_path / "run.json"]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    stored = json.loads((tmp_path / "run.json").read_text())
    assert run.stdout.strip() == report.text_of(stored)
    figures = report.Figures(stored["records"])
    for proxy in wanted:
        if proxy in stored["skipped"]:
            assert f"- {proxy}: {stored['skipped'][proxy]}" in run.stdout
            continue
        for measure in (JSON_US, report.Measure("first", "p50_us", ""), OPEN_P50):
            assert figures.cell(measure, proxy) not in ("", "failed"), run.stdout
    assert "least_work" not in stored["skipped"]
