"""Two implementations of the engine model agree on every request and every reading."""

import random
import subprocess

import pytest

from engine.plain_engine import BLOCK, PlainEngine, Request
from support.processes import POINTSMAN

SCRIPT = POINTSMAN.removesuffix("pointsman") + "engine_script"


class Scenario:
    """A random small engine, and what happens to it: commands as engine_script reads them."""

    def __init__(self, seed):
        rng = self.rng = random.Random(seed)
        self.blocks = rng.choice([rng.randint(40, 90), rng.randint(100, 500)])
        self.batched_tokens = rng.choice([rng.randint(3, 40), rng.randint(100, 600)])
        self.seqs = rng.randint(1, 20)
        self.constants = (
            rng.randint(0, 5) * 1e-3,
            rng.randint(1, 20) * 1e-3,
            rng.randint(10, 3_000) * 1e-6,
            rng.randint(0, 10_000) * 1e-9,
            rng.randint(0, 100) * 1e-6,
            rng.randint(0, 10) * 1e-5,
        )
        self.lengths = [0] * rng.randint(1, 30)
        self.systems = rng.choice([0, 0, 2])
        self.mean_output = rng.choice([3, 60, 200])
        self.commands = list(self.play(rng.uniform(0.2, 8), requests=80))

    def play(self, rate, requests):
        rng, now = self.rng, 0
        for name in range(1, requests + 1):
            if rng.random() > 0.1:  # else at the same instant as the one before
                now += int(rng.expovariate(rate) * 1e9 * rng.choice([1, 1, 1, 8]))
            yield ("submit", now, name, *self.text())
            if rng.random() < 0.3:
                now += int(rng.expovariate(rate) * 2e8)
                yield ("read", now)
            if rng.random() < 0.05:
                yield ("cancel", now, rng.randint(1, name))
            if rng.random() < 0.02:
                yield ("slow", now, rng.choice([1.0, 1.5, 3.0]))
            if rng.random() < 0.01:
                yield ("crash", now)
        yield ("read", now + 10_000_000_000_000)

    def text(self):
        """Prompt, output, and chain: the next turn of a conversation, or a turn said again."""
        rng, room = self.rng, self.blocks * BLOCK
        talk = rng.randrange(len(self.lengths))
        system = [3, 7][talk % 2] if self.systems else 0
        output = min(rng.randint(1, 2 * self.mean_output), room // 3)
        length = self.lengths[talk]
        prompt = system * BLOCK + length + rng.randint(1, 250)
        if prompt + output > room:
            self.lengths[talk] = 0
            prompt = min(system * BLOCK + rng.randint(1, 60), room - output)
        if rng.random() < 0.8:
            self.lengths[talk] = max(0, prompt + output - system * BLOCK)
        full = (prompt + output) // BLOCK
        chain = [(1_000 + talk % 2, min(system, full))] if system and full else []
        if full > system:
            chain.append((talk, full - system))
        if rng.random() < 0.2 and chain:  # an answer that the cache does not keep
            chain[-1] = (chain[-1][0], max(1, chain[-1][1] - rng.randint(0, 9)))
        return prompt, output, chain

    def for_cpp(self):
        numbers = (self.blocks, self.batched_tokens, self.seqs, *self.constants)
        lines = ["engine " + " ".join(map(repr, numbers))]
        for command, *values in self.commands:
            chain = values.pop() if command == "submit" else []
            words = [*map(str, values), *(f"{run}:{blocks}" for run, blocks in chain)]
            lines.append(" ".join([command, *words]))
        return "\n".join(lines) + "\n"

    def in_python(self):
        engine = PlainEngine(self.blocks, self.batched_tokens, self.seqs, self.constants)
        for command, now, *values in self.commands:
            now *= 1_000
            engine.advance(now)
            if command == "submit":
                engine.submit(now, Request(*values))
            elif command == "slow":
                engine.slowness = values[0]
            else:
                getattr(engine, command)(now, *values)
        assert len(engine.free) == engine.block_count
        return engine


@pytest.mark.parametrize("group", range(8))
def test_both_engines_say_the_same(group):
    preemptions = hits = 0
    for seed in range(12 * group, 12 * (group + 1)):
        scenario = Scenario(seed)
        engine = scenario.in_python()
        run = subprocess.run(
            [SCRIPT], input=scenario.for_cpp(), capture_output=True, text=True, check=True
        )
        assert run.stdout.splitlines() == engine.log, f"seed {seed}"
        preemptions += engine.preemptions
        hits += engine.hits
    assert preemptions > 20
    assert hits > 5_000
