"""`pointsman simulate` as a person meets it, and the plots of what it writes."""

import csv
import io
import json
import math
import os
import random
import re
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
    keys = {key for row in report["rows"] for key in row if not key.endswith("_ci95")}
    assert keys == set(report["definitions"])

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


def identities():
    """What identifies a row, by experiment and model, as docs/experiments/README.md says."""
    found = {}
    for line in (ROOT / "docs/experiments/README.md").read_text().splitlines():
        cells = re.fullmatch(r"\| `(\w+)` \| (.+) \| (.+) \|", line)
        if cells:
            for model in re.findall(r"`(\w+)`", cells[2]):
                found[cells[1], model] = re.findall(r"`(\w+)`", cells[3])
    return found


def check_identity(report):
    seen = set()
    for row in report["rows"]:
        keys = identities()[report["experiment"], row["model"]]
        assert ("policy" in row) == ("arm" in row) == ("policy" in keys), row
        identity = (row["model"], *(row[key] for key in keys))
        assert identity not in seen, identity
        seen.add(identity)


def report_of(path, *words):
    done = simulate(*words, "--json", path)
    assert done.returncode == 0, done.stderr
    report = json.loads(path.read_text())
    keys = {key for row in report["rows"] for key in row if not key.endswith("_ci95")}
    # Whoever adds a key says in src/experiments/definitions.cc what it is.
    assert keys == set(report["definitions"])
    check_identity(report)
    for row in report["rows"]:
        for key in keys & row.keys():
            if key.endswith("_share") and row.get(f"{key}_ci95"):
                low, high = row[f"{key}_ci95"]
                assert 0 <= low <= high <= 1, (key, row)
            if row.get(f"{key}_ci95") and row[key] is not None:
                low, high = row[f"{key}_ci95"]
                assert low is None or low <= row[key] <= high, (key, row)
    return report


def rows_of(path, *words):
    return report_of(path, *words)["rows"]


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


def test_the_best_of_all_herds_by_reports_and_two_choices_do_not(tmp_path):
    rows = rows_of(tmp_path / "herding.json", "herding", "--quick")
    chance = find(rows, policy="random", arm="L=1")
    step = "L=4, poll 2 s in step"
    best = find(rows, model="herding", policy="global_least_kv", arm=f"bare, {step}")
    two = find(rows, model="herding", policy="least_kv", arm=f"bare, {step}")
    assert best["favourite_share"] > 0.98 > 0.32 > two["favourite_share"]
    assert best["ttft_p50_s"] > 3 * chance["ttft_p50_s"]
    assert two["ttft_p50_s"] < 1.2 * chance["ttft_p50_s"]
    assert best["cv_load"] > 1.4 * two["cv_load"]
    alone = find(rows, model="herding", policy="least_work", arm="L=16, no exchange")
    told = find(rows, model="herding", policy="least_work", arm="L=16, exchange 0.05 s")
    assert told["ttft_p99_s"] < 0.85 * alone["ttft_p99_s"]
    series = [row for row in rows if row["model"] == "series"]
    assert series and all(len(row["requests_at_replica"]) == 8 for row in series)


def test_a_valve_matters_where_caches_bind(tmp_path):
    rows = rows_of(tmp_path / "valve.json", "valve", "--quick")

    def row(setting, arm):
        return find(rows, setting=setting, arm=arm)

    assert row("slack", "KV 0.50")["prefix_hit_rate"] > 0.97 * row("slack", "off")["prefix_hit_rate"]
    late, early, never = (row("kv_bound", arm) for arm in ("KV 0.90", "KV 0.50", "off"))
    assert late["p99_over_off"] < 0.8
    assert early["prefix_hit_rate"] < 0.5 * late["prefix_hit_rate"]
    assert never["preemptions"] > 1.5 * late["preemptions"]


def test_policies_beat_each_other_over_random_settings(tmp_path):
    rows = rows_of(tmp_path / "policies.json", "policies", "--quick")
    policies = [row for row in rows if row["model"] == "policy"]

    def gain(policy, arm):
        return find(policies, policy=policy, arm=arm)["p99_gain"]

    informed = gain("least_work", "exchange 50 ms, exact index")
    assert informed > 1.15
    assert informed > 1.5 * gain("least_connections", "")
    assert gain("least_connections", "") > 1.1 * gain("random", "")
    pairs = [row for row in rows if row["model"] == "pair"]
    assert len(pairs) == len(policies) * (len(policies) - 1)
    assert len([row for row in rows if row["model"] == "setting"]) == 12


def test_the_default_is_ahead_of_affinity_with_pools(tmp_path):
    rows = rows_of(tmp_path / "best.json", "best", "--quick", "--seeds", 4)
    full = "exact index, exchange 50 ms"
    for scenario in ("set_a", "ref70"):
        row = find(rows, model="named", scenario=scenario, arm=full, balancers=4)
        pools = find(rows, model="named", scenario=scenario, arm="segregation", balancers=4)
        assert row["ttft_p99_s"] < 0.8 * pools["ttft_p99_s"]
    assert find(rows, model="random", arm=full)["p99_gain"] > 1.2


FAULTS = """
preset: set_a
balancers: {exchange_s: 0.05}
faults:
  - {kind: dies, at_s: 150, replica: 1}
  - {kind: restarts, at_s: 200, replica: 1}
  - {kind: slows, at_s: 30, replica: 2, factor: 5}
  - {kind: slows, at_s: 200, replica: 2, factor: 1}
  - {kind: stops_reporting, at_s: 40, replica: 3}
  - {kind: reports, at_s: 90, replica: 3}
  - {kind: joins, at_s: 100, replica: 7}
"""


def test_a_scenario_file_has_all_faults(tmp_path):
    calm, stormy = tmp_path / "calm.yaml", tmp_path / "stormy.yaml"
    calm.write_text(FAULTS[: FAULTS.index("faults:")])
    stormy.write_text(FAULTS)
    words = ["--policy", "least_work,session_affinity", "--seeds", 2, "--requests", 6_000]
    calm_rows = rows_of(tmp_path / "calm.json", "run", calm, *words)
    rows = rows_of(tmp_path / "stormy.json", "run", stormy, *words)
    for policy in ("least_work", "session_affinity"):
        before, after = find(calm_rows, policy=policy), find(rows, policy=policy)
        assert before["failed"] == before["retried"] == 0
        # Answers under way are lost; those that had not begun are tried elsewhere.
        assert after["failed"] > 0
        assert after["ttft_p99_s"] > before["ttft_p99_s"]


def test_a_bad_scenario_is_refused_with_line_key_and_what_is_allowed(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("preset: set_a\nworkload:\n  think_s: -3\nfaults:\n  - {kind: dies, replica: 8}\n")
    done = simulate("run", file, "--policy", "random")
    assert done.returncode == 1
    assert f"{file}:3: workload.think_s: '-3' is not allowed (allowed: number, 0 to 86400)" in done.stderr
    assert f"{file}:5: faults[0].replica: there are 8 replicas" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["run", "tune"])
@pytest.mark.parametrize(
    "fault", ["kind: dies", "kind: slows, factor: 3", "kind: joins", "kind: stops_reporting"]
)
def test_a_fault_of_a_replica_that_a_flag_leaves_out_is_refused(tmp_path, command, fault):
    file = tmp_path / "faults.yaml"
    file.write_text(f"preset: set_a\nfaults:\n  - {{at_s: 10, replica: 5, {fault}}}\n")
    words = ["--policy", "random"] if command == "run" else []
    done = simulate(command, file, "--replicas", 2, "--seeds", 1, *words)
    assert done.returncode == 1
    assert f"{file}:3: faults[0].replica: 5, but --replicas leaves 2, numbered from 0" in done.stderr
    assert done.stdout == ""


def test_a_fault_after_the_run_that_a_flag_makes_short_is_refused(tmp_path):
    file = tmp_path / "faults.yaml"
    file.write_text("preset: set_a\nfaults:\n  - {kind: dies, at_s: 130, replica: 1}\n")
    for flags, said in ((["--requests", 500], "--requests 500"), (["--quick"], "--quick")):
        done = simulate("run", file, "--policy", "random", "--seeds", 1, *flags)
        assert done.returncode == 1
        assert f"{file}:3: faults[0]: changes nothing: comes after the last request" in done.stderr
        assert f" s with {said}" in done.stderr
    # How long a closed loop lasts is known at its end.
    file.write_text(
        "preset: set_a\narrivals: {kind: closed, users: 50}\n"
        "faults: [{kind: dies, at_s: 90000, replica: 1}]\n"
    )
    done = simulate("run", file, "--policy", "random", "--seeds", 1, "--requests", 500)
    assert done.returncode == 0, done.stderr
    assert "random: 1.0 of 1 faults a run came after the last request" in done.stdout


def test_prompts_that_no_engine_can_hold_are_counted(tmp_path):
    file, report = tmp_path / "cut.yaml", tmp_path / "cut.json"
    file.write_text(
        "replicas: [{count: 1, engine: {preset: 8b_a100, blocks: 1000, attention_ratio: 0}}]\n"
        "arrivals: {rate: 0.001}\nmeasure: {requests: 40}\n"
        "workload: {document_share: 1, document_low: 100000, document_high: 100000, turns_mean: 1}\n"
    )
    words = ["run", file, "--policy", "least_work", "--seeds", 1, "--json", report]
    done = simulate(*words)
    assert done.returncode == 0, done.stderr
    read = json.loads(report.read_text())
    (row,) = read["rows"]
    assert row["requests_cut"] >= row["requests"] > 20
    said = f"{row['requests_cut']:.1f} requests a run were cut to what the engines and"
    assert said in done.stdout
    assert "requests_cut" in read["definitions"]
    assert row["trace_cut"] is None


def test_a_large_fleet_has_the_load_of_a_small_one(tmp_path):
    words = ["run", "ref70", "--policy", "random", "--seeds", 1, "--replicas", 80]
    done = simulate(*words, "--json", tmp_path / "many.json")
    report = json.loads((tmp_path / "many.json").read_text())
    (row,) = report["rows"]
    assert report["scenario"]["measure"]["requests"] == 150_000
    assert row["offered_rps"] == pytest.approx(71.5, rel=0.03)
    assert "arrivals.rate" not in done.stdout
    done = simulate(*words, "--requests", 15_000, "--json", tmp_path / "short.json")
    report = json.loads((tmp_path / "short.json").read_text())
    assert report["scenario"]["measure"]["requests"] == 15_000
    assert report["rows"][0]["offered_rps"] < 0.95 * 71.5
    assert "came where arrivals.rate is 71.5" in done.stdout
    assert "a conversation lasts about" in done.stdout
    done = simulate("run", "ref70", "--policy", "random", "--seeds", 1, "--sharing", 0.99)
    assert "came where arrivals.rate is 7.15" in done.stdout


@pytest.mark.parametrize(
    "text, said",
    [
        ("arrivals: {trace: x.csv}", "arrivals.trace: changes nothing: it counts where arrivals.kind"),
        ("arrivals: {kind: open, trace: x}", "arrivals.trace: changes nothing"),
        ("arrivals: {kind: closed, users: 3, rate: 9}", "arrivals.rate: changes nothing"),
        ("segregated: true", "segregated: changes nothing: it counts where a replica has a pool"),
    ],
)
def test_a_key_that_changes_nothing_is_refused(tmp_path, text, said):
    file = tmp_path / "idle.yaml"
    file.write_text(f"name: x\n{text}\n")
    done = simulate("run", file, "--policy", "random")
    assert done.returncode == 1
    assert f"{file}:2: {said}" in done.stderr
    assert done.stdout == ""


def test_a_short_run_above_the_capacity_says_so(tmp_path):
    file = tmp_path / "over.yaml"
    file.write_text("preset: set_a\narrivals: {rate: 90}\n")
    words = ["--policy", "least_work,round_robin", "--requests", 6_000, "--seeds", 4]
    for row in rows_of(tmp_path / "over.json", "run", file, *words):
        assert row["over_capacity"] >= 0.5
        assert row["queue_growth_rps"] > 15
    for scenario in ("set_a", "ref70"):
        for row in rows_of(tmp_path / "within.json", "run", scenario, *words):
            assert row["over_capacity"] == 0


def test_a_load_above_the_capacity_is_run_and_said(tmp_path):
    file = tmp_path / "full.yaml"
    file.write_text("preset: set_a\narrivals: {rate: 100}\n")
    words = ["run", file, "--policy", "least_connections", "--seeds", 1, "--requests", 30_000]
    done = simulate(*words, "--json", tmp_path / "full.json")
    assert done.returncode == 0, done.stderr
    assert "above capacity in 1 of 1 runs; the queue grew by" in done.stdout
    (row,) = json.loads((tmp_path / "full.json").read_text())["rows"]
    assert row["over_capacity"] == 1 and row["queue_growth_rps"] > 1
    # Clients wait for answers before they go on, so fewer come than would.
    assert 10_000 < row["requests"] < 0.85 * 30_000


def test_the_same_command_writes_the_same_bytes(tmp_path):
    words = ["theory", "--quick", "--seeds", 1]
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert simulate(*words, "--json", one, "--jobs", 1).returncode == 0
    assert simulate(*words, "--json", two, "--jobs", 4).returncode == 0
    assert one.read_bytes() == two.read_bytes()


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    words = ["theory", "--quick", "--seeds", 1]
    done = simulate(*words, "--json", tmp_path / "none" / "x.json")
    assert done.returncode == 1
    message = f"pointsman simulate: cannot write {tmp_path}/none/x.json: No such file or directory\n"
    assert done.stderr == message
    assert done.stdout == "", "it says so before the run"
    one = tmp_path / "one"
    done = simulate(*words, "--json", one, "--csv", one)
    assert done.returncode == 1 and f"{one} is named for two files" in done.stderr
    assert not one.exists()
    done = simulate(*words, "--json", "")
    assert done.returncode == 2 and "--json: names no file" in done.stderr


@pytest.mark.parametrize("words", [["keys"], ["run", "--keys"], ["run", "set_a", "--policy", "random"]])
def test_what_cannot_be_printed_is_an_error(words):
    if words[-1] == "random":
        words = [*words, "--seeds", "1", "--requests", "200"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [POINTSMAN, "simulate", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("pointsman: cannot write standard output")


def test_a_dash_is_standard_output(tmp_path):
    words = ["run", "set_a", "--policy", "random", "--seeds", 1, "--requests", 300]
    done = simulate(*words, "--json", "-", "--csv", tmp_path / "rows.csv")
    assert done.returncode == 0, done.stderr
    assert [row["policy"] for row in json.loads(done.stdout)["rows"]] == ["random"]
    done = simulate(*words, "--csv", "-")
    assert done.stdout == (tmp_path / "rows.csv").read_text()
    assert simulate(*words, "--json", "-", "--csv", "-").returncode == 1


def test_least_work_of_the_command_line_is_told_of_its_fellows(tmp_path):
    words = ["--seeds", 2, "--requests", 1_500]
    told = simulate("run", "ref70", "--policy", "least_work", *words, "--json", tmp_path / "told.json")
    assert told.returncode == 0, told.stderr
    assert "least_work: routers: 4 (set for" in told.stdout
    report = json.loads((tmp_path / "told.json").read_text())
    assert report["scenario"]["arms"][0]["policy"]["options"] == {"routers": 4}
    # As docs/experiments/table.md has it: an arm of a file stays as it is written.
    file = tmp_path / "untold.yaml"
    file.write_text("preset: ref70\narms:\n  - policy: {preset: least_work, routers: 1}\n")
    untold = report_of(tmp_path / "untold.json", "run", file, *words)
    assert untold["scenario"]["arms"][0]["policy"]["options"] == {"routers": 1}
    hits = [one["rows"][0]["prefix_hit_rate"] for one in (report, untold)]
    assert hits[0] > 1.5 * hits[1], "sessions have homes"


def test_the_screen_has_what_the_engines_did():
    words = ["run", "set_a", "--policy", "random", "--seeds", 1, "--requests", 300]
    second = simulate(*words).stdout.split("\n\n")[2].splitlines()
    assert re.split(" {2,}", second[0])[2:] == [
        *("KV %", "busy %", "preempted", "valve openings", "poll s", "balancers", "pools")
    ]
    assert second[1].split()[-3:] == ["2.00", "4", "8/0/0"]


def test_columns_of_the_csv_file_do_not_depend_on_the_number_of_seeds(tmp_path):
    heads = []
    for seeds in (1, 2):
        file = tmp_path / f"{seeds}.csv"
        words = ["run", "set_a", "--policy", "random", "--seeds", seeds, "--requests", 300]
        assert simulate(*words, "--csv", file).returncode == 0
        heads.append(file.read_text().splitlines()[0].split(","))
    assert heads[0] == heads[1]
    assert not [key for key in heads[0] if key.endswith("_ci95")]


def test_what_is_no_trace_is_told_apart(tmp_path):
    def trace(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        done = simulate("run", "set_a", "--policy", "random", "--seeds", 1, "--trace", path)
        assert done.returncode == 1 and done.stdout == ""
        return done.stderr.removeprefix(f"pointsman simulate: {path}")

    columns = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    lines = b"2023-11-16 18:15:46,7,0\n2023-11-16 18:15:47,0,9\n"
    assert trace("none.csv", columns + lines) == (
        ": there is no request; left out: 2 lines, the first of them line 2: it has no answer tokens\n"
    )
    assert trace("packed.gz", b"\x1f\x8b\x08\x00\x00").startswith(":1: is no text")
    access = b'{"at":"2026-11-30T03:21:20.026Z","client":"::1","status":200,"whole_ms":1.0}\n'
    assert trace("access.log", access).startswith(":1: is the access log")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        done = simulate("run", "set_a", "--policy", "random", "--trace", path)
        assert done.returncode != 0
        assert f"{path} must be a regular file" in done.stderr


def test_names_cannot_move_the_cursor(tmp_path):
    file = tmp_path / "names.yaml"
    file.write_text(
        'preset: set_a\nname: "a\\e[2Jb"\narms:\n  - {policy: random, label: "one\\ntwo\\a"}\n'
    )
    done = simulate("run", file, "--seeds", 1, "--requests", 300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("a\\x1b[2Jb: 8 replicas, 4 balancers, 1 seed\n")
    assert "one\\ntwo\\x07" in done.stdout
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout


def test_a_scenario_without_policies_is_named(tmp_path):
    file = tmp_path / "bare.yaml"
    file.write_text("preset: set_a\n")
    assert simulate("run", file).stderr.startswith(f"pointsman simulate: {file}:1: arms: no policy: ")
    assert simulate("run", "set_a").stderr.startswith("pointsman simulate: set_a: no policy: ")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "set_a", "--policy", "random", "--sharing", "nan"],
        ["theory", "--sharing", "nan"],
        ["theory", "--sharing", "inf"],
        ["theory", "--first-seed", -1],
        ["theory", "--first-seed", 10**18],
        ["run", "set_a", "--policy", ""],
        ["table", "--replicas", 2],
        ["theory", "--replicas", 3_999],
    ],
)
def test_options_without_a_meaning_are_refused(words):
    done = simulate(*words)
    assert done.returncode != 0
    assert done.stdout == ""
    assert len(done.stderr) > 20


@pytest.mark.resident
def test_too_little_memory_is_an_error(tmp_path):
    file = tmp_path / "crowd.yaml"
    file.write_text("arrivals: {kind: closed, users: 10000000}\n")
    words = f"exec {POINTSMAN} simulate run {file} --policy random --seeds 1 --jobs 1"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -v 400000; {words}"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("pointsman simulate: out of memory")


def test_the_file_says_all_that_is_needed_to_run_again(tmp_path):
    scenario = tmp_path / "arms.yaml"
    scenario.write_text(
        "preset: set_a\narms:\n  - {policy: least_kv, poll_s: 0}\n  - policy: least_kv\n"
    )
    file = tmp_path / "run.json"
    words = ["--requests", 300, "--seeds", 1, "--first-seed", 7, "--json", file]
    done = simulate("run", scenario, *words)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert (report["seeds"], report["first_seed"]) == (1, 7)
    assert [row["arm"] for row in report["rows"]] == ["#1", "#2"]
    first, second = report["scenario"]["arms"]
    assert first == {"policy": {"preset": "least_kv", "options": {}}, "label": "#1", "poll_s": 0}
    assert "poll_s" not in second
    row = report["rows"][0]
    assert row["ttft_p99_s"] > 0 and row["ttft_p99_s_ci95"] is None
    assert 0 < row["replica_share_min"] <= 1 / 8 <= row["replica_share_max"] < 1
    assert "[" not in done.stdout, "one seed has no interval"


def test_plots_of_the_same_experiment_have_names_of_their_own(tmp_path):
    words = ["run", "set_a", "--policy", "random", "--requests", 300, "--seeds", 1]
    for name in ("a", "b"):
        assert simulate(*words, "--json", tmp_path / f"{name}.json").returncode == 0
    done = plot(tmp_path / "a.json", tmp_path / "b.json", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"run-a.html", "run-b.html", "run-a-policies.svg", "run-b-policies.png"} <= names


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


def test_a_folder_that_cannot_be_written_is_an_error():
    done = plot(REPORTS / "valve.json", "--out", "/proc/none")
    assert done.returncode == 1
    assert done.stderr.startswith("/proc/none: cannot write there: ")
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_no_report_is_an_error(tmp_path):
    file = tmp_path / "x.json"
    file.write_text('{"rows": []}')
    done = plot(file, "--out", tmp_path)
    assert done.returncode == 1
    assert "not a report" in done.stderr
    file.write_text("policy,arm\n")
    done = plot(file, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"{file}: is no JSON file of `pointsman simulate`" in done.stderr
    assert not (tmp_path / "out").exists()


def test_tune_finds_a_gain_that_holds_on_other_seeds(tmp_path):
    config, file, fleet = (tmp_path / name for name in ("pointsman.yaml", "tune.json", "fleet.yaml"))
    fleet.write_text("preset: set_a\nbalancers: {count: 8}\n")
    words = ["tune", fleet, "--quick", "--requests", 4000, "--config", config, "--json", file]
    done = simulate(*words, "--jobs", 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n\n" + config.read_text())
    report = json.loads(file.read_text())
    shipped, tuned = report["rows"]
    assert {k for k in tuned if not k.endswith("_ci95")} == set(report["definitions"])
    assert (shipped["policy"], shipped["arm"], shipped["ratio"]) == ("least_work", "as shipped", 1)
    # Eight routers that tell each other nothing meet behind long prompts: pools keep those apart.
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
    report = json.loads(file.read_text())
    rows = report["rows"]
    assert {k for row in rows for k in row if not k.endswith("_ci95")} == set(report["definitions"])
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
        (access_line(0, 9, 9, 9, 9) * 9, ": too few requests: 9 of 9 can be used, 50 are needed"),
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
    assert f"{trace}: has 149 requests to replay, too few" in done.stderr
