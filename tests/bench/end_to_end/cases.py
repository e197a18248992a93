"""What the bench measures: each case puts one kind of load through one proxy and returns figures.
A figure that cannot be trusted, because an answer or an event was missing, raises Failed instead."""

import http.client
import json
import subprocess
import tempfile
import time
from dataclasses import dataclass, field, replace

from bench.end_to_end.proxies import BUILD, LOAD_CORE, Proxy, Unavailable, pinned

MIB = 1 << 20
OPEN_RATE = 500
RAMP_PER_S = 800
HELD_S = 5


class Failed(Exception):
    """Why a measurement does not count."""


@dataclass
class Rig:
    """What a case may use: the replicas' ports, a folder in memory, and how long it may take."""

    replicas: list
    folder: object
    seconds: float
    tls: object = None  # the file of the proxies' certificate; None: plain HTTP


@dataclass
class Case:
    what: str
    run: object  # (rig, proxy, self) -> {measure: value}
    load: list = field(default_factory=list)
    pace: dict = None  # of the streams; none for JSON answers
    direct: bool = False  # also without a proxy, to tell what the proxy adds
    every: int = 1  # runs in each so many rounds


def set_pace(rig, events, interval_us=20_000, burst=1, first_us=20_000):
    connection = http.client.HTTPConnection("127.0.0.1", rig.replicas[0], timeout=5)
    query = f"events={events}&interval_us={interval_us}&burst={burst}&first_us={first_us}"
    connection.request("GET", f"/bench?{query}")
    if connection.getresponse().read() != b"ok":
        raise Failed("the replica does not take its pace")
    connection.close()


def load_command(proxy, case, *more):
    command = [BUILD / "bench_load", "--port", proxy.port, *case.load, *more]
    if case.pace:
        # [DONE] is an event too.
        command += ["--stream", 1, "--events", case.pace["events"] + 1]
    if proxy.tls:
        command += ["--tls", 1]
    return pinned(LOAD_CORE, *command)


def checked(proxy, output, errors, code):
    """The last line of the load generator; raises where anything was lost."""
    try:
        result = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(f"the load generator ended with {code}: {errors.strip()[:200]}") from None
    if not proxy.alive():
        raise Failed("the proxy ended")
    if code != 0 or result["errors"]:
        raise Failed(f"{result['errors']} errors, the first: {result['why']}")
    if result["requests"] == 0:
        raise Failed("no request was answered")
    return result


def put_through(rig, proxy, case):
    """(result of the load generator, CPU seconds of the proxy)."""
    if case.pace:
        set_pace(rig, **case.pace)
    before = proxy.cpu_s()
    command = load_command(proxy, case, "--seconds", rig.seconds)
    run = subprocess.run(command, capture_output=True, text=True, timeout=rig.seconds + 120)
    if not proxy.alive():
        raise Failed("the proxy ended")
    used = proxy.cpu_s() - before
    return checked(proxy, run.stdout, run.stderr, run.returncode), used


def per_request(rig, proxy, case):
    result, used = put_through(rig, proxy, case)
    return {
        "us": 1e6 * used / result["requests"],
        "per_s": result["requests"] / result["seconds"],
    }


def per_event(rig, proxy, case):
    result, used = put_through(rig, proxy, case)
    return {"us": 1e6 * used / result["events"]}


def open_loop(rig, proxy, case):
    result, used = put_through(rig, proxy, case)
    return {
        "us": 1e6 * used / result["requests"],
        "p50_us": result["request_p50_us"],
        "p99_us": result["request_p99_us"],
    }


def first_event(rig, proxy, case):
    result, _ = put_through(rig, proxy, case)
    return {"p50_us": result["first_p50_us"]}


def start(rig, proxy, case):
    with fresh(rig, proxy) as own:
        time.sleep(1)
        return {"ms": 1e3 * own.start_s, "idle_mb": own.resident_bytes() / MIB}


def fresh(rig, proxy):
    """A process that has served nothing yet."""
    try:
        return Proxy(proxy.name, rig.folder, rig.replicas, rig.tls)
    except Unavailable as reason:
        raise Failed(str(reason)) from None


def held(streams):
    """Streams of one event a second each, all open at once."""

    def run(rig, proxy, case):
        hold_s = max(2, min(HELD_S, 2 * rig.seconds))
        ramp_s = streams / RAMP_PER_S
        events = int(ramp_s + hold_s) + 4
        case = replace(case, pace={"events": events, "interval_us": 1_000_000})
        with fresh(rig, proxy) as own, tempfile.TemporaryFile("w+") as errors:
            time.sleep(0.5)
            idle = own.resident_bytes()
            set_pace(rig, **case.pace)
            load = ["--hold", streams, "--ramp", RAMP_PER_S, "--seconds", hold_s]
            command = load_command(own, case, *load)
            piped = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
            marks, lines = {}, []
            with subprocess.Popen(command, **piped) as process:
                # It says when all streams are held, and when so many seconds are over.
                for line in process.stdout:
                    lines.append(line)
                    step = json.loads(line)
                    if "held" in step or "window_events" in step:
                        marks.update(step)
                        marks["before" if "held" in step else "after"] = own.cpu_s()
                        marks["resident"] = own.resident_bytes()
            errors.seek(0)
            result = checked(own, "".join(lines), errors.read(), process.returncode)
        if marks.get("held") != streams:
            raise Failed(f"{marks.get('held')} of {streams} streams were held")
        return {
            "kib": (marks["resident"] - idle) / 1024 / streams,
            "us": 1e6 * (marks["after"] - marks["before"]) / marks["window_events"],
            "delay_p99_ms": result["event_p99_us"] / 1000,
        }

    return run


def prompt(kib):
    load = ["--connections", 8, "--prompt-bytes", kib * 1024, "--families", 16]
    return Case(f"prompts of {kib} KiB, 8 connections", per_request, load)


def streams(connections, **pace):
    paced = {"events": 64, **pace}
    return per_event, ["--connections", connections], paced


CASES = {
    "json": Case("JSON of 1 KB, 32 connections", per_request, direct=True),
    "paced": Case("64 streams of 50 events/s", *streams(64)),
    "paced200": Case("200 streams of 50 events/s", *streams(200)),
    "bursts": Case(
        "64 streams of 50 bursts/s of 16 events", *streams(64, burst=16, events=1024)
    ),
    "open": Case(
        f"{OPEN_RATE} requests/s of 1 KB, open loop",
        open_loop,
        ["--rate", OPEN_RATE],
        direct=True,
    ),
    "first": Case(
        "the first event, one stream after the other on one connection",
        first_event,
        ["--connections", 1],
        {"events": 4, "first_us": 1000, "interval_us": 2000},
        direct=True,
    ),
    "prompt1": prompt(1),
    "prompt16": prompt(16),
    "prompt128": prompt(128),
    "prompt512": prompt(512),
    "start": Case("from exec to the first 200; resident memory 1 s later", start),
    "held2000": Case("2,000 streams of 1 event/s", held(2000), every=3),
    "held9000": Case("9,000 streams of 1 event/s", held(9000), every=3),
}
QUICK = [name for name in CASES if name != "held9000"]
# What `./dev bench` without `peers` looks at.
BASIC = ["json", "paced", "paced200"]
