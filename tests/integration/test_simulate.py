"""`pointsman simulate` as a person meets it, and the plots of what it writes."""

import csv
import io
import json
import math
import random
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest
from support.processes import POINTSMAN, ROOT

REPORTS = ROOT / "tests/data/reports"


def simulate(*words):
    return subprocess.run(
        [POINTSMAN, "simulate", *map(str, words)], capture_output=True, text=True, timeout=300
    )


def plot(*words):
    return subprocess.run(
        [sys.executable, ROOT / "tools/plots", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_theory_agrees_with_the_closed_forms(tmp_path):
    file = tmp_path / "theory.json"
    table = tmp_path / "theory.csv"
    done = simulate("theory", "--quick", "--json", file, "--csv", table)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar where there is no terminal
    report = json.loads(file.read_text())
    assert report["experiment"] == "theory"
    assert report["seeds"] == 4

    rows = [row for row in report["rows"] if row["model"] == "supermarket"]
    assert {row["choices"] for row in rows} == {1, 2, 3}
    for row in rows:
        low, high = row["time_in_system_s_ci95"]
        assert low <= row["time_in_system_s"] <= high
        # Four seeds: the standard error is 1.4 % for one choice at 0.99, and below 0.8 % for more.
        assert abs(row["deviation"]) < (0.06 if row["choices"] == 1 else 0.03), row
    few = next(row for row in report["rows"] if row["model"] == "finite")
    assert -0.01 < few["deviation"] < 0.04
    fullest = {
        row["choices"]: row["fullest"] for row in report["rows"] if row.get("bins") == 8192
    }
    assert fullest[2] <= 3.5 < 6 < fullest[1]

    read = list(csv.DictReader(io.StringIO(table.read_text())))
    assert len(read) == len(report["rows"])
    for line, row in zip(read, report["rows"], strict=True):
        for key in ("time_in_system_s", "fullest"):
            assert float(line[key] or "nan") == pytest.approx(row.get(key, float("nan")), nan_ok=True)


def rows_of(path, *words):
    done = simulate(*words, "--json", path)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())["rows"]


def find(rows, **wanted):
    (row,) = [row for row in rows if all(row.get(k) == v for k, v in wanted.items())]
    return row


def test_the_published_table_comes_out(tmp_path):
    rows = rows_of(tmp_path / "table.json", "table", "--quick")

    def row(policy, arm=""):
        return find(rows, model="policy", policy=policy, arm=arm)

    # Sixteen short runs: p99 has a standard error of 5 to 15 %.
    published = [one for one in rows if one.get("published_throughput") and one["model"] == "policy"]
    assert len(published) == 5
    errors = []
    for one in published:
        for key, most in (("ttft_p50_s", 0.4), ("ttft_p99_s", 0.5), ("prefix_hit_rate", 0.2)):
            assert abs(one[f"{key}_deviation"]) < most, (one["policy"], one["arm"], key)
            errors.append(math.log(1 + one[f"{key}_deviation"]))
    assert math.sqrt(sum(error**2 for error in errors) / len(errors)) < 0.28

    round_robin = row("round_robin")
    counts, live = row("least_connections"), row("least_kv", "live")
    home, pools = row("session_affinity", "kv-valve"), row("session_affinity", "segregation")
    assert round_robin["ttft_p99_s"] > 1.3 * counts["ttft_p99_s"]
    assert counts["ttft_p99_s"] > 0.85 * live["ttft_p99_s"]
    assert row("least_kv", "bare-1.5s")["ttft_p99_s"] > 1.2 * live["ttft_p99_s"]
    assert home["ttft_p99_s"] > 1.1 * pools["ttft_p99_s"]
    for one in (round_robin, counts, live):
        assert 0.10 < one["prefix_hit_rate"] < 0.13
    assert 0.98 * home["prefix_hit_bound"] < home["prefix_hit_rate"] <= home["prefix_hit_bound"]
    best = row("least_work", "exchange-50ms exact-index")
    assert best["ttft_p99_s"] < 0.75 * pools["ttft_p99_s"]
    assert best["ttft_p50_s"] < 1.05 * home["ttft_p50_s"]
    assert best["closed_loop_ratio"] > 1.15

    sweep = {(one["sharing"], one["policy"], one["arm"]): one for one in rows if "sharing" in one}
    for (sharing, policy, arm), one in sweep.items():
        if sharing == 0:
            assert one["prefix_hit_rate"] == 0
        elif (policy, arm) == ("session_affinity", "kv-valve"):
            assert one["prefix_hit_rate"] > 0.97 * one["prefix_hit_bound"]
    # Nothing to come home to: sessions are spread by chance alone.
    lost = sweep[0, "session_affinity", "kv-valve"]["ttft_p99_s"]
    assert lost > 1.5 * sweep[0, "least_kv", "live"]["ttft_p99_s"]
    rich = sweep[0.9, "session_affinity", "kv-valve"]["ttft_p50_s"]
    assert rich < 0.4 * sweep[0.9, "round_robin", ""]["ttft_p50_s"]


def test_pools_help_few_long_requests_and_harm_when_sized_wrongly(tmp_path):
    rows = rows_of(tmp_path / "segregation.json", "segregation", "--quick")

    def row(model, policy, arm, **wanted):
        return find(rows, model=model, policy=policy, arm=arm, **wanted)

    def share(documents, policy, arm):
        return row("share", policy, arm, document_share=documents)

    none, pools, valve = "no pools", "pools 6/1/1", "no pools, valve on KV alone"
    work = "no pools, exchange, exact index"
    # No documents: two replicas fewer for everybody.
    assert share(0, "session_affinity", pools)["short_p99_gain"] < 0.95
    # A few: the published valve does not see a replica stuck behind one.
    few = share(0.0075, "session_affinity", pools)
    stuck = share(0.0075, "session_affinity", valve)
    assert few["ttft_p99_short_s"] < 0.6 * stuck["ttft_p99_short_s"]
    # Many: the short ones are as fast as ever, and the long ones wait in line for their one replica.
    many = share(0.03, "session_affinity", pools)
    assert many["short_p99_gain"] > 4
    assert many["ttft_p99_short_s"] < 1.2 * few["ttft_p99_short_s"]
    assert many["over_capacity"] > 0 == share(0.03, "session_affinity", none)["over_capacity"]
    assert many["ttft_p50_long_s"] > 20 * share(0.03, "session_affinity", none)["ttft_p50_long_s"]
    for documents in (0, 0.0075, 0.03):
        ours = share(documents, "least_work", work)
        theirs = share(documents, "session_affinity", pools)
        assert ours["ttft_p99_short_s"] < theirs["ttft_p99_short_s"]
        assert ours["ttft_p50_long_s"] < theirs["ttft_p50_long_s"]

    small = row("pools", "session_affinity", "pools 6/1/1", document_share=0.0038)
    large = row("pools", "session_affinity", "pools 4/3/1", document_share=0.0038)
    assert large["ttft_p99_short_s"] > 1.15 * small["ttft_p99_short_s"]
    # Near the capacity of eight replicas, six are too few.
    full = row("rate", "session_affinity", pools, rate_rps=13)
    assert full["ttft_p50_s"] > 1.12 * row("rate", "session_affinity", none, rate_rps=13)["ttft_p50_s"]
    # Clients that always allow much all meet in the pool for long generations.
    flood = row("limits", "session_affinity", pools, stated_limit_tokens=16384)
    assert flood["ttft_p99_short_s"] is None
    assert flood["ttft_p50_s"] > 100
    assert row("limits", "least_work", work, stated_limit_tokens=16384)["ttft_p50_s"] < 0.5


def test_the_same_command_writes_the_same_bytes(tmp_path):
    words = ["theory", "--quick", "--seeds", 1, "--replicas", 20]
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert simulate(*words, "--json", one, "--jobs", 1).returncode == 0
    assert simulate(*words, "--json", two, "--jobs", 4).returncode == 0
    assert one.read_bytes() == two.read_bytes()


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    words = ["theory", "--quick", "--seeds", 1, "--replicas", 20]
    done = simulate(*words, "--json", tmp_path / "none" / "x.json")
    assert done.returncode == 1
    assert done.stderr == f"pointsman simulate: cannot write {tmp_path}/none/x.json\n"


@pytest.mark.parametrize("file", sorted(REPORTS.glob("*.json")), ids=lambda path: path.stem)
def test_plots_and_report_are_drawn_and_always_the_same(file, tmp_path):
    outputs = []
    for name in ("one", "two"):
        done = plot(file, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        outputs.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    assert outputs[0] == outputs[1]

    page = outputs[0][f"{file.stem}.html"].decode()
    report = json.loads(file.read_text())
    assert report["title"] in page
    assert 'src="' not in page and 'href="http' not in page  # it needs nothing beside it
    drawings = [name for name in outputs[0] if name.endswith(".svg")]
    assert drawings
    assert page.count("<svg") == len(drawings)
    for name in drawings:
        assert ElementTree.fromstring(outputs[0][name]).tag.endswith("svg")
        assert outputs[0][name.replace(".svg", ".png")].startswith(b"\x89PNG\r\n")


def test_rows_of_an_unknown_experiment_become_bars(tmp_path):
    rows = [
        {"policy": policy, "arm": "", "ttft_p99_s": p99, "ttft_p99_s_ci95": [p99 - 1, p99 + 1]}
        for policy, p99 in (("round_robin", 8.4), ("least_work", 1.1))
    ]
    report = {"experiment": "made-up", "title": "A <title>", "seeds": 2, "scenario": {}, "rows": rows}
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report))
    done = plot(file, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "round_robin" in (tmp_path / "made-up-policies.svg").read_text()
    assert "A &lt;title&gt;" in (tmp_path / "made-up.html").read_text()


def test_a_file_that_is_no_report_is_an_error(tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"rows": []}')
    done = plot(file, "--out", tmp_path)
    assert done.returncode == 1
    assert "not a report" in done.stderr


def test_tune_finds_a_gain_that_holds_on_other_seeds(tmp_path):
    config, file = tmp_path / "pointsman.yaml", tmp_path / "tune.json"
    words = ["tune", "ref70", "--quick", "--requests", 4000, "--config", config, "--json", file]
    done = simulate(*words, "--jobs", 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n\n" + config.read_text())
    report = json.loads(file.read_text())
    shipped, tuned = report["rows"]
    assert (shipped["policy"], shipped["arm"], shipped["ratio"]) == ("least_work", "as shipped", 1)
    # Four routers that tell each other nothing: sessions that stay at home are far better.
    assert tuned["gain_shown"] and tuned["ratio"] < 0.85
    assert tuned["ratio_ci95"][1] < 1
    scenario = report["scenario"]
    assert scenario["first_final_seed"] >= scenario["first_seed"] + scenario["search_seeds"]
    checked = subprocess.run([POINTSMAN, "check", config], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    # The same answer on another number of cores.
    again = tmp_path / "again.json"
    assert simulate(*words[:-1], again, "--jobs", 1).returncode == 0
    assert again.read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    "words, said",
    [
        (["--measure", "ttft_p98_s"], "'ttft_p98_s' is not a time that can be tuned (known: "),
        (["--measure", "prefix_hit_rate"], "is not a time that can be tuned"),
        (["--trace", "/nowhere.csv"], "/nowhere.csv"),
    ],
)
def test_tune_says_what_it_cannot_do(words, said):
    done = simulate("tune", "ref70", "--quick", *words)
    assert done.returncode != 0
    assert said in done.stderr


def access_line(number, prompt, output, ttft_ms, itl_ms):
    """A request that was alone on its engine, as `pointsman serve` logs it."""
    at = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(1_769_862_896 + 60 * number))
    line = {"at": at, "replica": "http://a:8000", "status": 200, "tries": 1, "stream": True}
    line |= {"prompt_tokens": prompt, "output_tokens": output, "ttft_ms": round(ttft_ms, 1)}
    return json.dumps(line | {"whole_ms": round(ttft_ms + (output - 1) * itl_ms, 1)}) + "\n"


def test_calibrate_finds_what_a_step_costs(tmp_path):
    log, file, scenario = (tmp_path / name for name in ("access.log", "c.json", "fleet.yaml"))
    chance = random.Random(1)
    lines = []
    for number in range(300):
        prompt, output = int(10 ** chance.uniform(1.5, 3.8)), chance.randint(20, 200)
        # t0 4 ms, tw 8 ms, tc 50 us, tkv 60 ns, and 5 ms of network; 2 % of noise.
        ttft = (9 + max(8, 0.05 * prompt)) * chance.gauss(1, 0.02)
        lines.append(access_line(number, prompt, output, ttft, 12 + 60e-6 * (prompt + output / 2)))
    log.write_text("".join(lines))
    done = simulate("calibrate", log, "--quick", "--json", file)
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    found = {row["key"]: row for row in rows if row["model"] == "constant"}
    assert found["engine.token_s"]["value"] == pytest.approx(50e-6, rel=0.04)
    assert found["engine.weights_s"]["value"] == pytest.approx(0.008, rel=0.15)
    assert found["engine.step_s"]["value"] == pytest.approx(0.004, rel=0.3)
    assert found["engine.context_s"]["value"] == pytest.approx(60e-9, rel=0.05)
    assert not found["engine.sequence_s"]["told"]  # never two requests at once
    assert 0.01 < find(rows, what="TTFT")["mape"] < 0.03
    assert find(rows, what="ITL")["mape"] < 0.01

    # What is printed below the tables is a scenario.
    scenario.write_text(done.stdout[done.stdout.index("\nreplicas:") :] + "arrivals: {rate: 1}\n")
    ran = simulate("run", scenario, "--policy", "least_work", "--requests", 200, "--seeds", 1)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "text, said",
    [
        ("", ":1: there is no request in this file"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ":1: is not a line of the access log"),
        (access_line(0, 9, 9, 9, 9) + "{}\n", ":2: is not a line of the access log"),
        (access_line(0, 9, 9, 9, 9) * 9, ":9: too few requests: 9 of 9 can be used, 50 are needed"),
    ],
)
def test_calibrate_refuses_other_files(tmp_path, text, said):
    log = tmp_path / "access.log"
    log.write_text(text)
    done = simulate("calibrate", log)
    assert done.returncode == 1
    assert f"{log}{said}" in done.stderr


def test_tune_measures_a_trace_on_the_half_that_the_search_has_not_seen(tmp_path):
    trace, file = tmp_path / "trace.csv", tmp_path / "tune.json"
    chance = random.Random(3)
    rows = ["Timestamp,Session ID,Request tokens,Response tokens"]
    for number in range(1_200):
        session, prompt = chance.randrange(100), chance.randint(100, 6_000)
        rows.append(f"{number / 8},s{session},{prompt},{chance.randint(5, 200)}")
    trace.write_text("\n".join(rows) + "\n")
    done = simulate("tune", "set_a", "--trace", trace, "--quick", "--json", file)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    # Half of the trace, without its warm-up.
    assert report["rows"][0]["requests"] == pytest.approx(600 * 0.8, abs=2)
    assert any("first half of the trace" in note for note in report["notes"])
    trace.write_text("\n".join(rows[:150]) + "\n")
    done = simulate("tune", "set_a", "--trace", trace, "--quick")
    assert done.returncode == 1
    assert f"{trace}:149: too few requests" in done.stderr
