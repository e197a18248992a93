"""Four real llama.cpp servers and the official client. The engines' own counts decide."""

import pytest

from support.llama_fleet import fleet, run_sessions
from support.router import Router

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def engines():
    with fleet(4) as urls:
        yield urls


def test_the_engines_show_affinity_without_a_router(engines):
    """What a router can gain here at most, so that a failure below is the router's."""
    sticky = run_sessions(lambda session, turn: engines[session % 4], seed=1)
    spread = run_sessions(lambda session, turn: engines[(session + turn) % 4], seed=2)
    assert sticky.hit_ratio >= 0.60
    assert spread.hit_ratio <= 0.10


def through_router(engines, policy, seed):
    with Router(engines, policy=policy) as router:
        # One at a time, so that round robin meets each session with another replica at every turn.
        return run_sessions(lambda session, turn: router.url, seed, concurrency=1)


def test_session_affinity_reuses_prefixes_that_round_robin_loses(engines):
    affinity = through_router(engines, "session_affinity", seed=3)
    round_robin = through_router(engines, "round_robin", seed=4)
    assert affinity.hit_ratio >= 0.60
    assert affinity.hit_ratio >= round_robin.hit_ratio + 0.40


def test_least_work_finds_the_replica_that_holds_a_session(engines):
    assert through_router(engines, "least_work", seed=5).hit_ratio >= 0.60
