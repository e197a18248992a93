"""Four real llama.cpp servers and the official client. The engines' own counts decide."""

import pytest

from support.llama_fleet import fleet, run_sessions


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
