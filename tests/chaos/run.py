#!/usr/bin/env python3
"""Mixed load on one router before four replicas that are killed, stopped, slowed, drained, taken out
and restarted. At the end one line for each thing that must hold, and all figures as JSON.

All choices follow from the seed; when each is carried out follows from the machine as well, and is
in the log. See docs/chaos.md.
"""

import argparse
import asyncio
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from chaos.answers import CUT, GOOD  # noqa: E402
from chaos.connection import ask  # noqa: E402
from chaos.disturbances import REPLICAS, Disturbances, SimulatedReplica, plan  # noqa: E402
from chaos.traffic import MAX_HELD, Traffic  # noqa: E402

from support.load import allow_many_files  # noqa: E402
from support.processes import POINTSMAN, ROOT  # noqa: E402
from support.router import Router  # noqa: E402

CLIENTS = 80

# What is left after the load must be gone within this time: it covers the longest wait of the
# router that no event ends, that for a client which takes nothing.
SETTLE_S = 60

# Of the router's memory between the end of the warm-up and the end of the load. Allocators and the
# kernel's page counts move by some of it; a leak of 100 bytes a request is more within minutes.
MEMORY_GROWTH_MIB = 16

# All that the router may say on standard error while replicas come and go.
USUAL_LINES = re.compile(
    r"^\S+Z (info|warning) (shutting down: |replica http://\S+ (is (in|out)|was (told|added|taken|removed))|"
    r"replica http://\S+: no load signals|cutting what still runs)|^(listening|admin) on |^$"
)


def settings(folder):
    return {
        "threads": 2,
        "features": {"max_body": f"{MAX_HELD // 1024}KiB"},
        # Every replica may be tried: what fails then is the router's doing.
        "retry": {"tries": REPLICAS - 1, "after_sent": REPLICAS - 1},
        "health": {"ejection": "1s", "max_ejection": "3s"},
        "timeouts": {"client_stall": "10s"},
        # Full within the warm-up.
        "index": {"max_bytes": "1MiB"},
        "log": {"access": str(folder / "access.log")},
    }


@dataclasses.dataclass
class Check:
    name: str
    good: bool
    figures: str


def resident_mib(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text).group(1)) / 1024


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Chaos:
    def __init__(self, arguments):
        self.seconds = arguments.minutes * 60
        self.seed = arguments.seed
        self.quiet = arguments.quiet
        self.sanitized = arguments.sanitized
        self.samples = []
        self.lines = []
        self.begin = time.monotonic()

    def log(self, line):
        line = f"{time.monotonic() - self.begin:8.2f} s  {line}"
        self.lines.append(line)
        if not self.quiet:
            print(line, flush=True)

    async def run(self, folder):
        self.replicas = [SimulatedReplica(number) for number in range(REPLICAS)]
        self.router = None
        try:
            self.router = Router(self.replicas, "least_work", **settings(folder))
            await self._run(folder)
        finally:
            for process in [r.process for r in self.replicas] + [self.router]:
                if process:
                    process.kill()

    async def _run(self, folder):
        router = self.router
        self.traffic = Traffic(router.url, self.seed, CLIENTS)
        steps = plan(self.seed, self.seconds)
        self.disturbances = Disturbances(self.replicas, router.urls["admin"], steps, self.log)
        for replica in self.replicas:
            await replica.offer_tunnel()
            await self.disturbances._wait_used(replica)
        idle = await self._idle_descriptors()
        self.log(
            f"seed {self.seed}: {CLIENTS} clients, {REPLICAS} replicas, {self.seconds:.0f} s, "
            f"{len(steps)} disturbances; the router is process {router.pid}"
        )
        begin = self.begin = time.monotonic()
        load = asyncio.create_task(self.traffic.run())
        disturbing = asyncio.create_task(self.disturbances.run(begin, self.seconds))
        await self._watch(begin, load)
        self.load_s = time.monotonic() - begin
        # The disturbances end first, so that the last requests have somewhere to go.
        await disturbing
        self.log("the disturbances have ended")
        self.traffic.stopping.set()
        await load
        self.log("the load has ended")
        left = await self._settle(idle)
        self.log("nothing changes any more")
        alive = router.alive()
        metrics = await self._metrics() if alive else collections.Counter()
        router.signal(signal.SIGTERM)
        code = await asyncio.to_thread(router.wait, 60) if alive else router.process.returncode
        access = self._read_access(folder / "access.log")
        self.checks = self._judge(left, idle, alive, code, metrics, access)
        self.metrics = metrics

    async def _idle_descriptors(self):
        counts = []
        for _ in range(20):
            counts.append(descriptors(self.router.pid))
            await asyncio.sleep(0.1)
        return max(counts)

    async def _watch(self, begin, load):
        while (now := time.monotonic()) < begin + self.seconds and self.router.alive():
            pid = self.router.pid
            self.samples.append(
                {
                    "at_s": round(now - begin, 1),
                    "resident_mib": round(resident_mib(pid), 1),
                    "descriptors": descriptors(pid),
                    "asked": sum(self.traffic.asked.values()),
                }
            )
            await self._metrics()
            if load.done():
                load.result()
            await asyncio.sleep(1)

    async def _metrics(self):
        status, body = await ask(self.disturbances.admin, "GET", "/metrics")
        assert status == 200, status
        samples = collections.Counter()
        for line in body.decode().splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                samples[name] = float(value)
        return samples

    async def _left(self):
        """What of the load is left in the router: name -> number."""
        left = collections.Counter()
        for replica in await self.disturbances.replicas_seen():
            for name, value in replica["load"].items():
                if name in ("in_flight", "awaiting_first_token") or name.endswith("_tokens"):
                    left[f"replicas' {name}"] += value
        for name, value in (await self._metrics()).items():
            name = name.split("{")[0]
            if name in (
                "pointsman_requests_in_flight",
                "pointsman_client_connections",
                "pointsman_held_body_bytes",
                "pointsman_replica_in_flight",
                "pointsman_replica_awaiting_first_token",
                "pointsman_replica_outstanding_prefill_tokens",
                "pointsman_replica_charged_prompt_tokens",
            ):
                left[name] += value
        for replica in self.replicas:
            _, body = await replica.ask("GET", "/debug/requests")
            left["in flight as the replicas see it"] += json.loads(body)["in_flight"]
        return left

    async def _settle(self, idle):
        """What is left once nothing changes any more: all of it, with zeros."""
        end = time.monotonic() + SETTLE_S
        seen = {}
        while self.router.alive():
            left = await self._left()
            left["descriptors above those at the start"] = descriptors(self.router.pid) - idle
            rest = {name: value for name, value in left.items() if value > 0}
            if rest != seen:
                self.log(f"left: {rest}")
                seen = rest
            if not rest or time.monotonic() > end:
                return left
            await asyncio.sleep(0.2)
        return collections.Counter()

    @staticmethod
    def _read_access(path):
        """Lines of each request's mark."""
        lines = collections.defaultdict(list)
        for line in path.read_text().splitlines():
            record = json.loads(line)
            lines[record.get("request_id", "")].append(record)
        return lines

    def _memory(self):
        """(after the warm-up, at the end): medians of a sixth of the run each, in MiB."""
        resident = [sample["resident_mib"] for sample in self.samples]
        part = max(1, len(resident) // 6)
        warm = len(resident) // 3
        return statistics.median(resident[warm : warm + part]), statistics.median(resident[-part:])

    def _judge(self, left, idle, alive, code, metrics, access):
        traffic = self.traffic
        total = sum(traffic.asked.values())
        verdicts = sum(traffic.verdicts.values(), collections.Counter())
        checks = []

        def check(name, good, figures):
            checks.append(Check(name, bool(good), figures))

        retries = sum(v for name, v in metrics.items() if name.startswith("pointsman_retries_total"))
        excused = "".join(f", {n} excused ({why})" for why, n in sorted(traffic.excused.items()))
        check(
            "no request failed before its first byte",
            not traffic.failed and verdicts[GOOD] > 0,
            f"{total} requests, {retries:g} of them tried again, {len(traffic.failed)} failed{excused}",
        )
        check(
            "no truncated answer passed for a whole one, no bytes went astray",
            not traffic.wrong,
            f"{verdicts[GOOD]} whole ({traffic.streams_whole} of them streams), {verdicts[CUT]} "
            f"visibly cut, {len(traffic.wrong)} wrong; {traffic.bytes / 2**20:.0f} MiB compared",
        )
        check("no request hung", not traffic.hung, f"{len(traffic.hung)} hung")
        doubled = [mark for mark, lines in access.items() if mark and len(lines) > 1]
        check(
            "one line in the access log for each request",
            not doubled,
            f"{sum(map(len, access.values()))} lines, {len(doubled)} marks with several",
        )
        remains = {name: value for name, value in left.items() if value > 0}
        held = {k: v for k, v in remains.items() if not k.startswith("descriptors")}
        check(
            "the ledger is zero",
            alive and left and not held,
            ", ".join(f"{name}: {value:g}" for name, value in held.items())
            or f"{len(left) - 1} counts, all zero",
        )
        check(
            "no descriptor leaked",
            alive and left and left["descriptors above those at the start"] <= 0,
            f"{idle} at the start, {idle + left['descriptors above those at the start']} at the "
            f"end, at most {max(s['descriptors'] for s in self.samples)} between",
        )
        if self.sanitized:
            # A sanitizer keeps what was freed.
            check("memory is flat", True, "not looked at under a sanitizer")
        else:
            warm, end = self._memory()
            check(
                "memory is flat",
                end <= warm + MEMORY_GROWTH_MIB,
                f"{warm:.1f} MiB after the warm-up, {end:.1f} MiB at the end (bound: + "
                f"{MEMORY_GROWTH_MIB} MiB)",
            )
        problems = self.disturbances.problems
        check(
            "every replica came back into use",
            not problems,
            f"{len(self.disturbances.done)} disturbances, {len(problems)} failed",
        )
        unusual = [line for line in self.router.output().splitlines() if not USUAL_LINES.match(line)]
        broken = metrics["pointsman_internal_errors_total"]
        check(
            "the router's log has nothing that cannot happen",
            not unusual and broken == 0,
            f"{len(unusual)} unusual lines, {broken:g} broken invariants"
            + "".join("\n        " + line for line in unusual[:20]),
        )
        check("the router lived, and ended when told", alive and code == 0, f"exit code {code}")
        return checks

    def report(self):
        actions = collections.Counter(e["step"]["action"] for e in self.disturbances.done)
        per_kind = {k: dict(v) for k, v in self.traffic.verdicts.items()}
        return {
            "seed": self.seed,
            "seconds": round(self.load_s, 1),
            "binary": POINTSMAN,
            "clients": CLIENTS,
            "requests": sum(self.traffic.asked.values()),
            "requests_per_second": round(sum(self.traffic.asked.values()) / self.load_s, 1),
            "checks": [dataclasses.asdict(check) for check in self.checks],
            "asked": dict(self.traffic.asked),
            "verdicts": per_kind,
            "excused": dict(self.traffic.excused),
            "longest": self.traffic.longest,
            "failed": self.traffic.failed,
            "wrong": self.traffic.wrong,
            "hung": self.traffic.hung,
            "actions": dict(actions),
            "disturbances": self.disturbances.done,
            "problems": self.disturbances.problems,
            "samples": self.samples,
            "metrics": dict(self.metrics),
            "log": self.lines,
            "router_log": self.router.output().splitlines(),
        }


def main():
    parser = argparse.ArgumentParser(prog="./dev chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of load (default 10)")
    parser.add_argument("--seed", type=int, help="of all choices (default: another one each time)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="where the data goes")
    parser.add_argument("--quiet", action="store_true", help="the result alone")
    parser.add_argument("--sanitized", action="store_true", help="memory is not looked at")
    arguments = parser.parse_args()
    if arguments.minutes < 0.1:
        parser.error("--minutes: at least 0.1")
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(10**6)
    path = arguments.json or ROOT / f"build/chaos/{arguments.seed}.json"
    allow_many_files()

    chaos = Chaos(arguments)
    with tempfile.TemporaryDirectory(prefix="pointsman-chaos-") as folder:
        asyncio.run(chaos.run(pathlib.Path(folder)))
    report = chaos.report()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1))

    print(f"\n{report['requests']} requests in {report['seconds']} s, seed {report['seed']}")
    for check in chaos.checks:
        print(f"{'ok    ' if check.good else 'FAILED'} {check.name}: {check.figures}")
    failures = report["failed"] + report["wrong"] + report["hung"]
    for failure in failures[:10]:
        print(f"       {failure}")
    print(f"data: {path}")
    bad = [check.name for check in chaos.checks if not check.good]
    if bad:
        print(
            f"chaos: {len(bad)} of {len(chaos.checks)} checks failed; again with "
            f"./dev chaos --minutes {arguments.minutes:g} --seed {arguments.seed}",
            file=sys.stderr,
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
