"""Simulated replicas as real processes, and many clients at once."""

import asyncio
import pathlib
import re

import pytest

from support.load import allow_many_files, stream
from support.processes import POINTSMAN, Listening, until
from support.router import Router
from support.wire import Client

SPEED = 20  # Engine seconds per second.


def simulated(start, *flags):
    return start(Listening([POINTSMAN, "replica", "--listen", "127.0.0.1:0", "--speed", SPEED, *flags]))


def replicas_of(router):
    with Client(router.urls["admin"]) as client:
        return client.get("/v1/replicas").json["replicas"]


def charges(router):
    return sum(
        replica["load"][name]
        for replica in replicas_of(router)
        for name in ("in_flight", "outstanding_prefill_tokens", "charged_prompt_tokens")
    )


def peak_memory_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024


@pytest.fixture(autouse=True)
def _files():
    allow_many_files()


def test_a_thousand_streams_at_once_through_one_reactor(start):
    replicas = [simulated(start, "--max-num-seqs", "512") for _ in range(2)]
    router = start(Router(replicas, policy="least_work"))
    before = peak_memory_mib(router.pid)

    async def all_at_once():
        runs = [stream(router.url, f"question {n} " * 20, max_tokens=40) for n in range(1000)]
        return await asyncio.gather(*runs)

    results = asyncio.run(all_at_once())
    assert sum(result.good for result in results) == 1000
    until(lambda: charges(router) == 0, what="all charges released")
    assert router.metric("pointsman_requests_in_flight") == 0
    # Well under 64 KiB a stream, connections on both sides included.
    assert peak_memory_mib(router.pid) - before < 64


def test_killing_one_of_four_replicas_fails_no_request_without_a_byte(start):
    replicas = [simulated(start) for _ in range(4)]
    router = start(Router(replicas, policy="least_work"))
    victim = replicas[0]
    began = set()
    failed_without_a_byte = []
    good = 0

    async def client(number, killed):
        nonlocal good
        after_kill = 0
        turn = 0
        while after_kill < 5:
            turn += 1
            key = (number, turn)
            result = await stream(
                router.url,
                f"client {number} turn {turn} " * 200,
                max_tokens=60,
                on_first_byte=lambda key=key: began.add(key),
            )
            good += result.good
            if not result.good and key not in began:
                failed_without_a_byte.append((key, result))
            after_kill += killed.is_set()

    async def everything():
        killed = asyncio.Event()
        clients = [asyncio.create_task(client(number, killed)) for number in range(48)]
        # Not before streams flow through the one that dies.
        while not (len(began) > 100 and in_flight_on(victim) > 0):
            await asyncio.sleep(0.02)
        victim.process.kill()
        killed.set()
        await asyncio.wait_for(asyncio.gather(*clients), 120)

    def in_flight_on(replica):
        return sum(r["load"]["in_flight"] for r in replicas_of(router) if r["url"] == replica.url)

    asyncio.run(everything())
    assert failed_without_a_byte == []
    assert good > 48 * 5
    until(lambda: charges(router) == 0, what="all charges released")

    def seen():
        (gone,) = [replica for replica in replicas_of(router) if replica["url"] == victim.url]
        assert not gone["usable"]
        return gone["state"], gone["why"]

    # The requests find it first; the next probe says how its port answers.
    until(lambda: seen() == ("gone", "gone: connection refused"), what="why it is gone")
    line = f"warning replica {victim.url} is out: gone: connection refused"
    until(lambda: line in router.output(), what="the log says that it is gone")
