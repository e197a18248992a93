#!/usr/bin/env python3
"""Tokens per second of one core: `pointsman` beside the reference library, in turns.

  ./dev build release bench_micro && .venv/bin/python tests/bench/tokens.py [MODEL_FOLDER]

The text is the one of tests/bench/micro/tokens_bench.cc; CPU time counts.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ["RAYON_NUM_THREADS"] = "1"
SIZES = (1_000, 16 << 10, 100_000, 512 << 10)
ROUNDS = 3


def ours(model):
    command = [ROOT / "build/release/tests/bench_micro", "--benchmark_filter=BM_Tokens"]
    command += ["--benchmark_format=json", "--benchmark_min_time=0.2"]
    environment = {**os.environ, "POINTSMAN_BENCH_MODEL": str(model)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [run["tokens/s"] for run in json.loads(done.stdout)["benchmarks"]]


def reference(model):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    page = (ROOT / "docs/life_of_a_request.md").read_bytes()
    rates = []
    for size in SIZES:
        text = (page * (size // len(page) + 1))[:size].decode(errors="ignore")
        tokens, start = 0, time.process_time()
        while time.process_time() - start < 0.2:
            tokens += len(tokenizer.encode(text, add_special_tokens=False).ids)
        rates.append(tokens / (time.process_time() - start))
    return rates


def main():
    model = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "tests/data/tokens")
    rounds = [(ours(model), reference(model)) for _ in range(ROUNDS)]
    print("bytes     pointsman  reference  million tokens/s, medians")
    for at, size in enumerate(SIZES):
        mine, other = (statistics.median(side[at] for side in sides) / 1e6 for sides in zip(*rounds))
        print(f"{size:7}   {mine:9.2f}  {other:9.2f}  {mine / other:.1f} times")


if __name__ == "__main__":
    main()
