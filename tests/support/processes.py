"""Starts programs that print `listening on URL` (and `admin on URL`), and ends them."""

import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
POINTSMAN = os.environ.get("POINTSMAN_BINARY", str(ROOT / "build/release/pointsman"))
LISTENING = re.compile(r"^(listening|admin|observe) on (https?://\S+:\d+)")


class Listening:
    """A process that says where it listens.

    `urls` maps `listening`, and `admin` and `observe` where `ports` names them, to what was printed;
    `url` is the first of these. All output is kept, for messages.
    """

    def __init__(self, command, ports=("listening",), timeout_s=60, environment=None):
        self._errors = tempfile.TemporaryFile(mode="w+")
        self.lines = []
        self.urls = {}
        self._ready = threading.Event()
        self._ports = set(ports)
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(timeout_s) or not self._ports <= self.urls.keys():
            self.kill()
            raise RuntimeError(f"{command} does not listen:\n{self.output()}")

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if found := LISTENING.match(self.lines[-1]):
                self.urls.setdefault(*found.groups())
                if self._ports <= self.urls.keys():
                    self._ready.set()
        self._ready.set()

    @property
    def url(self):
        return self.urls["listening"]

    @property
    def pid(self):
        return self.process.pid

    def output(self):
        # Without seeking: the process writes where the file's one offset is.
        size = os.fstat(self._errors.fileno()).st_size
        errors = os.pread(self._errors.fileno(), size, 0).decode(errors="replace")
        return "\n".join(self.lines) + "\n" + errors

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.alive():
            self.process.send_signal(number)

    def wait(self, timeout_s=30):
        return self.process.wait(timeout_s)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout_s=10):
        """SIGTERM, and SIGKILL for one that does not follow. Returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A second SIGTERM cuts what a first one would let finish.
        self.signal(signal.SIGTERM)
        self.stop()


def until(condition, timeout_s=20, what="condition"):
    """Waits until `condition()` is true, and returns its value."""
    end = time.monotonic() + timeout_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)
