"""Real vLLM servers on CPU, with their cache events, for `./dev test --engines vllm`."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import pytest

from support.processes import ROOT

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZER = ROOT / "tests/data/tokens"
BLOCK_TOKENS = 32  # The smallest that attention on CPUs has.
BLOCKS = 128
# Idle, a server is up after 60 s of imports in three processes; two beside other work take minutes.
START_S = 1800


def environment():
    """The folder of a Python environment with vLLM; skips where there is none or none is wanted."""
    folder = os.environ.get("POINTSMAN_VLLM", "")
    if os.environ.get("POINTSMAN_ENGINES") != "vllm":
        pytest.skip("vLLM is a large download; run ./dev test --engines vllm")
    if not pathlib.Path(folder, "bin/vllm").exists():
        pytest.skip(folder or "POINTSMAN_VLLM is not set")
    return pathlib.Path(folder)


def model():
    """The folder of a random-weight model of 2 layers x 128, made once a checkout."""
    script = HERE / "make_tiny_model.py"
    name = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    folder = ROOT / "build/vllm" / name
    if not folder.exists():
        made = folder.with_suffix(".part")
        command = [sys.executable, script, "--out", made, "--tokenizer", TOKENIZER]
        subprocess.run(command, check=True)
        made.rename(folder)
    return folder


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Vllm:
    """One server on loopback, which publishes its cache events.

    Without `connect`, a port of a router, its publisher listens, on `events_port`. Events that were
    missed can be asked for on `replay_port` either way.
    """

    def __init__(self, environment, connect=None):
        self._environment = environment
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.connects = connect is not None
        if self.connects:
            self.events_port, self.replay_port = connect, free_port()
            self._endpoints = {
                "endpoint": f"tcp://127.0.0.1:{connect}",
                "replay_endpoint": f"tcp://127.0.0.1:{self.replay_port}",
                "topic": f"kv@127.0.0.1:{self._port}@tiny",
            }
        else:
            # Ports that the system gives, on the address of VLLM_HOST_IP.
            self._endpoints = {"endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}
        self._errors = tempfile.TemporaryFile(mode="w+b")
        self._process = None

    def start(self):
        self.begin()
        self.wait_ready()

    def begin(self):
        events = {"enable_kv_cache_events": True, "publisher": "zmq", **self._endpoints}
        words = [self._environment / "bin/vllm", "serve", model(), "--served-model-name", "tiny"]
        words += ["--host", "127.0.0.1", "--port", self._port, "--dtype", "float32"]
        words += ["--enforce-eager", "--block-size", BLOCK_TOKENS, "--max-num-seqs", 8]
        words += ["--num-gpu-blocks-override", BLOCKS, "--max-model-len", 2048]
        words += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
        words += ["--kv-events-config", json.dumps(events)]
        settings = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_HOST_IP": "127.0.0.1",
            "OMP_NUM_THREADS": "1",
        }
        # A session of its own: the server is several processes, and all must go with it.
        self._process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env={**os.environ, **settings},
            start_new_session=True,
        )

    def wait_ready(self):
        end = time.monotonic() + START_S
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"vLLM does not start:\n{self.output()}")
            time.sleep(0.2)
        if not self.connects:
            source = json.loads(self._get("/kv_event_sources"))["0"]
            self.events_port = urllib.parse.urlsplit(source["endpoint"]).port
            self.replay_port = urllib.parse.urlsplit(source["replay_endpoint"]).port

    def replica(self):
        """Its entry in a router's configuration."""
        events = {} if self.connects else {"kv_events_port": self.events_port}
        return {"url": self.url, "kv_replay_port": self.replay_port, **events}

    def output(self):
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")[-8000:]

    def stop(self):
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        self._process = None

    def _get(self, path):
        return urllib.request.urlopen(self.url + path, timeout=5).read()

    def _healthy(self):
        try:
            self._get("/health")
            return True
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def start_all(servers):
    """Starts servers at once: much of a start is waiting for the disk."""
    for server in servers:
        server.begin()
    with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(Vllm.wait_ready, servers))
