"""Real llama.cpp servers, and multi-turn sessions against them by the official client."""

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import pathlib
import random
import statistics
import subprocess
import sys
import time
import urllib.request

import openai

from support import make_tiny_model
from support.processes import ROOT, Listening, until

HERE = pathlib.Path(__file__).resolve().parent
SESSIONS = 7
TURNS = 4
SYSTEM_WORDS = 800
TURN_WORDS = 30
ANSWER_TOKENS = 8


def model():
    """The GGUF of a random-weight model of 4 layers x 128, made once a checkout."""
    script = HERE / "make_tiny_model.py"
    name = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    folder = ROOT / "build/llama.cpp" / name
    gguf = folder / "tiny.gguf"
    if not gguf.exists():
        made = folder / "tiny.gguf.part"
        command = [sys.executable, script, "--out", folder, "--gguf", made]
        subprocess.run([*command, "--hidden", "128", "--layers", "4"], check=True)
        made.rename(gguf)
    return gguf


@contextlib.contextmanager
def fleet(size=4):
    """The URLs of `size` ready llama.cpp servers."""
    path = model()
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(Listening([sys.executable, HERE / "llama_server.py", path]))
            for _ in range(size)
        ]
        for server in servers:
            until(lambda url=server.url: healthy(url), 60, f"{server.url} is ready")
        yield [server.url for server in servers]


def healthy(url):
    try:
        return urllib.request.urlopen(f"{url}/health", timeout=5).status == 200
    except OSError:
        return False


@dataclasses.dataclass
class Outcome:
    """What the engines themselves reported of one arm."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    first_turn_ttft_s: list = dataclasses.field(default_factory=list)
    later_turn_ttft_s: list = dataclasses.field(default_factory=list)

    @property
    def hit_ratio(self):
        return self.cached_tokens / self.prompt_tokens

    @property
    def later_turn_ttft_ms(self):
        return 1000 * statistics.median(self.later_turn_ttft_s)


def run_sessions(address, seed, concurrency=2, progress=None):
    """SESSIONS sessions of TURNS turns, each turn of all sessions before the next.

    `address(session, turn)` is the server to ask. Another seed makes other texts, so that one arm
    finds nothing in the caches from the arm before.
    """
    rng = random.Random(seed)
    words = make_tiny_model.WORDS
    messages = [
        [{"role": "system", "content": " ".join(rng.choices(words, k=SYSTEM_WORDS))}]
        for _ in range(SESSIONS)
    ]
    outcome = Outcome()
    clients = {}

    def ask(session, turn):
        url = address(session, turn)
        client = clients.setdefault(
            url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)
        )
        start = time.monotonic()
        first = usage = None
        answer = ""
        stream = client.chat.completions.create(
            model="tiny",
            messages=messages[session],
            max_tokens=ANSWER_TOKENS,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        for event in stream:
            if event.choices and event.choices[0].delta.content:
                first = first or time.monotonic() - start
                answer += event.choices[0].delta.content
            usage = event.usage or usage
        return session, first, answer, usage

    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        for turn in range(TURNS):
            for session in range(SESSIONS):
                question = " ".join(rng.choices(words, k=TURN_WORDS))
                messages[session].append({"role": "user", "content": question})
            for session, first, answer, usage in pool.map(ask, range(SESSIONS), [turn] * SESSIONS):
                messages[session].append({"role": "assistant", "content": answer})
                outcome.prompt_tokens += usage.prompt_tokens
                outcome.cached_tokens += usage.prompt_tokens_details.cached_tokens
                if first is not None:
                    times = outcome.later_turn_ttft_s if turn else outcome.first_turn_ttft_s
                    times.append(first)
            if progress:
                progress(turn + 1)
    return outcome
