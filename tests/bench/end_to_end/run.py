#!/usr/bin/env python3
"""CPU, latency and memory of pointsman beside other proxies, in one run.

Each proxy runs with one thread on core 0; the stand-in replicas and the load generator share core 1.
The proxies take turns in every round, in another order each time. The CPU time that the kernel
accounted to a proxy is divided by the requests (or events) that went through it. What counts is the
ratio to haproxy in the same round: machines and their load differ.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import random
import subprocess
import sys
import tempfile
from dataclasses import replace

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from bench.end_to_end import cases, proxies, report  # noqa: E402
from support.certificates import Certificate  # noqa: E402
from support.processes import Listening  # noqa: E402

LISTENERS = 4


def names(allowed):
    def parse(text):
        for name in text.split(","):
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"{name}: allowed are {', '.join(allowed)}")
        return text.split(",")

    return parse


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text:50}", end="", file=sys.stderr, flush=True)


def load_average():
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(models)} × {models[0]}" if models else platform.machine()


def start_replicas(stack):
    command = proxies.pinned(
        proxies.LOAD_CORE, proxies.BUILD / "bench_replica", "--listeners", LISTENERS
    )
    replica = stack.enter_context(Listening(command))
    found = [line for line in replica.lines if line.startswith("replica on")]
    return [int(line.rsplit(":", 1)[1]) for line in found]


def make_certificate(folder):
    made = Certificate(folder, "proxy", "subjectAltName=DNS:localhost")
    both = folder / "proxy.pem"
    both.write_text(made.certificate.read_text() + made.key.read_text())
    return both


def start_all(stack, wanted, rig, skipped):
    """Those of `wanted` that start; the others' reasons go into `skipped`."""
    started = []
    for name in wanted:
        progress(f"starting {name}")
        try:
            proxy = proxies.Proxy(name, rig.folder, rig.replicas, rig.tls)
            started.append(stack.enter_context(proxy))
        except proxies.Unavailable as reason:
            skipped[name] = str(reason)
    return started


def measure(rig, name, proxy):
    case = cases.CASES[name]
    if not proxy.alive():
        return {"failed": "the proxy has ended"}
    try:
        return {"figures": case.run(rig, proxy, case)}
    # A proxy that ends meanwhile takes its entries in /proc along.
    except (cases.Failed, OSError, subprocess.TimeoutExpired) as reason:
        return {"failed": str(reason)}


def run(arguments):
    limit = proxies.descriptors()
    records, skipped = [], {}
    conditions = {
        "date": datetime.datetime.now().strftime("%d %B %Y, %H:%M"),
        "machine": f"{processor()}, Linux {platform.release()}",
        "load average before": load_average(),
    }
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        tls = make_certificate(folder) if arguments.tls else None
        rig = cases.Rig(start_replicas(stack), folder, arguments.seconds, tls)
        started = start_all(stack, arguments.only, rig, skipped)
        direct = proxies.Direct(rig.replicas)
        for proxy in started:  # One unmeasured run fills caches and connection pools.
            measure(replace(rig, seconds=min(rig.seconds, 0.5)), "json", proxy)
        order = random.Random(1)
        for number in range(arguments.rounds):
            for name in arguments.cases:
                case = cases.CASES[name]
                if number % case.every != 0:
                    continue
                # What TLS adds for a load generator is no proxy's doing.
                turn = [*started, direct] if case.direct and not tls else started
                for proxy in order.sample(turn, len(turn)):
                    progress(f"round {number + 1}/{arguments.rounds}: {name}, {proxy.name}")
                    record = {"round": number, "case": name, "proxy": proxy.name}
                    records.append(record | measure(rig, name, proxy))
        progress("")
    conditions |= {
        "load average after": load_average(),
        "descriptors": limit,
        "rounds": f"{arguments.rounds} of {arguments.seconds:g} s for each figure"
        + ("; held streams in every third" if arguments.rounds > 1 else ""),
    }
    if arguments.tls:
        conditions["TLS"] = f"from clients: 1.3, {proxies.TLS_SUITE}, P-256, connections kept"
    conditions |= {f"version of {proxy.name}": proxy.version for proxy in started}
    # Proxies in the order they were asked for, not in that of the first round.
    rank = {name: at for at, name in enumerate([*arguments.only, report.DIRECT])}
    records.sort(key=lambda record: (record["round"], rank[record["proxy"]]))
    return {"conditions": conditions, "skipped": skipped, "records": records}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", nargs="?", choices=["peers"], help="all proxies and all cases")
    parser.add_argument("--only", type=names(proxies.PLANS), metavar="PROXY,...")
    parser.add_argument("--cases", type=names(cases.CASES), metavar="CASE,...")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--tls", action="store_true", help="clients speak TLS 1.3 to the proxies")
    parser.add_argument("--seconds", type=float, help="of one measurement (2)")
    parser.add_argument("--quick", action="store_true", help="one short round, for a look")
    parser.add_argument("--json", type=pathlib.Path, help="also store all figures here")
    parser.add_argument("--show", type=pathlib.Path, help="print the tables of a stored run again")
    parser.add_argument("--list", action="store_true", help="list proxies and cases")
    arguments = parser.parse_args()
    if arguments.list:
        print("proxies:", ", ".join(proxies.PLANS))
        print("\n".join(f"{name:10} {case.what}" for name, case in cases.CASES.items()))
        return 0
    if arguments.show:
        print(report.text_of(json.loads(arguments.show.read_text())))
        return 0
    all_cases = cases.QUICK if arguments.quick else list(cases.CASES)
    arguments.only = arguments.only or (proxies.ALL if arguments.peers else proxies.BASIC)
    arguments.cases = arguments.cases or (all_cases if arguments.peers else cases.BASIC)
    arguments.rounds = arguments.rounds or (1 if arguments.quick else 5)
    arguments.seconds = arguments.seconds or (0.5 if arguments.quick else 2)

    os.sched_setaffinity(0, {proxies.LOAD_CORE})
    result = run(arguments)
    print(report.text_of(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
