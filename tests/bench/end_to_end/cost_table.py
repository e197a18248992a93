#!/usr/bin/env python3
"""Where the CPU time of a request or an event goes: samples of pointsman by `perf`, sorted into parts.

A sample in the kernel belongs to the system call that it serves, any other to the function that was
running. A part is a list of patterns of function names; the first that matches counts.
"""

import argparse
import collections
import contextlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from bench.end_to_end import cases, proxies, run  # noqa: E402

SYSTEM_CALLS = {
    "sendto": "kernel: send",
    "sendmsg": "kernel: send",
    "recvfrom": "kernel: receive",
    "epoll_wait": "kernel: wait for events",
}
PARTS = {
    "heads and framing": r"HeadParser|HeadWriter|write_response_head|header_id|\bHead::|ChunkScanner"
    r"|ResponseBody|RequestBody|PathTable|routing_path|plain_prefix|append_chunk",
    "reading the prompt": r"simdjson|\bjson::|ChatRequest|XXH|BlockHasher|Prompt(Content|Text)|read_content"
    r"|read_body_field|RequestFacts|session_key",
    "reading the answer": r"AnswerReader|AnswerObserver|PlainAnswer|SseScanner|last_object|read_usage"
    r"|Exchange::observed",
    "prefix index": r"Prefix",
    "decision": r"Router|Pipeline|LeastWork|\bBest::|NotFull|FleetView|Valve|Sampler|Scorer|Filter",
    "ledger and estimates": r"Ledger|ModelEstimates|Charge|LoadExchange",
    "metrics and logs": r"append_access_line|AccessLog|DecisionLog|Histogram|WordCounter|write_log"
    r"|ProxyMetrics|clock_gettime|Clock::now|steady_clock",
    "connections and exchange": r"Exchange|ClientConnection|Upstream|Stream|Poller|TimerWheel|Reactor"
    r"|ProxyShard|InputBuffer|recv$|send$|epoll_wait$|asynccancel",
    "memory and text": r"^(_*(malloc|free|calloc|realloc|int_malloc|int_free)|operator (new|delete)|.*mem(cpy|move"
    r"|chr|cmp|set)|str(chr|len)|.*std::)",
}
OTHER = "the rest"
KERNEL_REST = "kernel: the rest"


def part_of(stack):
    """`stack`: [(function, in the kernel)], innermost first."""
    function, in_kernel = stack[0]
    if in_kernel:
        for name, _ in stack:
            call = re.fullmatch(r"__(?:x64_|arm64_)?sys_(\w+)", name)
            if call:
                return SYSTEM_CALLS.get(call[1], KERNEL_REST)
        return KERNEL_REST
    return next((part for part, names in PARTS.items() if re.search(names, function)), OTHER)


def stacks(text):
    """The samples of `perf script`."""
    for sample in text.split("\n\n"):
        frames = []
        for line in sample.splitlines():
            frame = re.fullmatch(r"\s+[0-9a-f]+ (.*) \((.*)\)", line)
            if frame:
                frames.append((frame[1], "kernel" in frame[2]))
        if frames:
            yield frames


def sampled(rig, proxy, case, data):
    """({part: samples}, CPU us for each request or event)."""
    command = ["perf", "record", "--quiet", "-g", "--freq", "2000", "--output", data]
    with subprocess.Popen([*command, "--pid", str(proxy.pid)]) as recorder:
        figures = case.run(rig, proxy, case)
        recorder.terminate()
    fields = ["--fields", "ip,sym,dso"]
    text = subprocess.run(
        ["perf", "script", "--input", data, *fields], capture_output=True, text=True, check=True
    ).stdout
    return collections.Counter(map(part_of, stacks(text))), figures["us"]


def table(columns):
    """`columns`: {case: (parts, us)}."""
    rows = [*PARTS, OTHER, *dict.fromkeys(SYSTEM_CALLS.values()), KERNEL_REST]
    lines = ["| CPU µs | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for row in rows:
        values = [us * parts[row] / max(1, parts.total()) for parts, us in columns.values()]
        lines.append(f"| {row} | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    totals = [f"{us:.1f}" for _, us in columns.values()]
    lines.append("| **all** | " + " | ".join(totals) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    policies = ["least_work", "round_robin"]
    parser.add_argument("--policy", default="least_work", choices=policies)
    parser.add_argument("--seconds", type=float, default=5, help="of each case (5)")
    default = ["json", "paced", "bursts", "prompt128"]
    names = run.names(cases.CASES)
    parser.add_argument("--cases", type=names, default=default, metavar="CASE,...")
    arguments = parser.parse_args()
    if shutil.which("perf") is None:
        print("perf is not installed (Debian: linux-perf)", file=sys.stderr)
        return 1
    proxies.descriptors()
    columns = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        rig = cases.Rig(run.start_replicas(stack), folder, arguments.seconds)
        proxy = stack.enter_context(proxies.Proxy(arguments.policy, folder, rig.replicas))
        for name in arguments.cases:
            columns[name] = sampled(rig, proxy, cases.CASES[name], str(folder / "perf.data"))
    print(table(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
