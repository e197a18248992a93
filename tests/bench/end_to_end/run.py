#!/usr/bin/env python3
"""CPU per request and per streamed event of pointsman, haproxy and nginx, in one run.

Each proxy runs with one thread on core 0; the stand-in replica and the load generator share core 1.
The proxies take turns in every round, in another order each time, and the CPU time that the kernel
accounted to a proxy is divided by the requests (or events) that went through it. What counts is the
ratio to haproxy in the same round: machines and their load differ.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.processes import Listening, until  # noqa: E402

BUILD = ROOT / "build/release"
PROXY_CORE, LOAD_CORE = "0", "1"

# name: (unit, arguments of bench_load)
CASES = {
    "JSON 1 KB, 32 connections": ("requests", ["--connections", "32"]),
    "JSON 1 KB, 64 connections": ("requests", ["--connections", "64"]),
    "64 streams of 50 events/s": ("events", ["--connections", "64", "--stream", "1"]),
    "200 streams of 50 events/s": ("events", ["--connections", "200", "--stream", "1"]),
}

HAPROXY = """
global
  nbthread 1
  maxconn 4096
  log stdout format raw local0
defaults
  mode http
  log global
  option httplog
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 300s
  timeout server 300s
frontend data
  bind 127.0.0.1:{port}
  default_backend replicas
backend replicas
  balance roundrobin
  server a 127.0.0.1:{replica} check
"""

NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log {folder}/access.log combined;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  upstream replicas {{
    server 127.0.0.1:{replica};
    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def port_of(url):
    return int(url.rsplit(":", 1)[1])


def pinned(core, *command):
    return ["taskset", "-c", core, *map(str, command)]


def answers(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True


def cpu_seconds(pid):
    """On-CPU time of a process, all its threads and children, by the scheduler's account."""
    total = 0.0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0]) / 1e9
        for child in (task / "children").read_text().split():
            total += cpu_seconds(int(child))
    return total


class Proxy:
    def __init__(self, name, process, port):
        self.name, self.process, self.port = name, process, port

    def cost_us(self, case, seconds):
        """(CPU microseconds per unit, units a second) of one run."""
        unit, arguments = CASES[case]
        before = cpu_seconds(self.process.pid)
        load = [BUILD / "bench_load", "--port", self.port, "--seconds", seconds, *arguments]
        run = subprocess.run(pinned(LOAD_CORE, *load), capture_output=True, text=True)
        used = cpu_seconds(self.process.pid) - before
        result = json.loads(run.stdout or '{"errors": "no output"}')
        if run.returncode != 0 or result["errors"]:
            raise RuntimeError(f"{self.name}, {case}: {result} {run.stderr}")
        return 1e6 * used / result[unit], result[unit] / result["seconds"]


@contextlib.contextmanager
def plain_process(command, **more):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **more)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def start_pointsman(stack, folder, replica, policy):
    config = {
        "listen": "127.0.0.1:0",
        "admin": "off",
        "threads": 1,
        "policy": {"preset": policy},
        "pools": [{"name": "general", "replicas": [f"http://127.0.0.1:{replica}"]}],
        "log": {"access": str(folder / f"{policy}.log")},
    }
    path = folder / f"{policy}.yaml"
    path.write_text(json.dumps(config))
    command = pinned(PROXY_CORE, BUILD / "pointsman", "serve", "-c", path)
    process = stack.enter_context(Listening(command))
    return Proxy(f"pointsman, {policy}", process, port_of(process.url))


def start_other(stack, folder, replica, name):
    port = free_port()
    path = folder / f"{name}.conf"
    template = HAPROXY if name == "haproxy" else NGINX
    path.write_text(template.format(port=port, replica=replica, folder=folder))
    binary = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    flags = ["-db", "-f", path] if name == "haproxy" else ["-e", folder / "error.log", "-c", path]
    log = stack.enter_context(open(folder / f"{name}.log", "w"))
    command = pinned(PROXY_CORE, binary, *flags)
    process = stack.enter_context(plain_process(command, stdout=log, stderr=log))
    until(lambda: answers(port), 10, f"{name} listens")
    return Proxy(name, process, port)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3, help="of one measurement")
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--json", type=pathlib.Path, help="also write all figures here")
    arguments = parser.parse_args()
    cases = arguments.case or list(CASES)

    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        replica = stack.enter_context(Listening(pinned(LOAD_CORE, BUILD / "bench_replica")))
        port = port_of(replica.url)
        proxies = [
            start_pointsman(stack, folder, port, "least_work"),
            start_pointsman(stack, folder, port, "round_robin"),
            start_other(stack, folder, port, "haproxy"),
            start_other(stack, folder, port, "nginx"),
        ]
        costs = {case: {proxy.name: [] for proxy in proxies} for case in cases}
        rates = {case: {proxy.name: [] for proxy in proxies} for case in cases}
        for proxy in proxies:  # One unmeasured run fills caches and connection pools.
            proxy.cost_us(cases[0], 0.5)
        order = random.Random(1)
        for number in range(arguments.rounds):
            for case in cases:
                for proxy in order.sample(proxies, len(proxies)):
                    print(f"\rround {number + 1}/{arguments.rounds}: {case}, {proxy.name:24}",
                          end="", file=sys.stderr, flush=True)  # fmt: skip
                    cost, rate = proxy.cost_us(case, arguments.seconds)
                    costs[case][proxy.name].append(cost)
                    rates[case][proxy.name].append(rate)
        print(file=sys.stderr)

    for case in cases:
        unit = CASES[case][0]
        print(f"\n{case}: CPU µs per {unit[:-1]}, median of {arguments.rounds} rounds (lowest-highest)")
        print(f"  {'proxy':24} {'µs':>20}   {'of haproxy, per round':24} {unit}/s")
        for name, values in costs[case].items():
            ratios = [own / peer for own, peer in zip(values, costs[case]["haproxy"])]
            print(
                f"  {name:24} {spread(values, 1):>20}   {spread(ratios, 2):24} "
                f"{statistics.median(rates[case][name]):,.0f}"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps({"cost_us": costs, "per_second": rates}, indent=1))
    return 0


def spread(values, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
