"""`pointsman simulate` as a person meets it, and the plots of what it writes."""

import csv
import io
import json
import subprocess
import sys
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
