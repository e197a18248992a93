import contextlib
import pathlib
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from support.router import Router  # noqa: E402
from support.wire import Replica, answer_ok  # noqa: E402


@pytest.fixture(scope="session")
def cases():
    """The folder of the handed cases."""
    return pathlib.Path(__file__).resolve().parent / "data/cases"


@pytest.fixture
def start():
    """`start(thing)` keeps a process or replica for the test and ends it afterwards."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture(scope="module")
def shared_world():
    with Replica() as replica, Router([replica]) as router:
        yield types.SimpleNamespace(replica=replica, router=router)


@pytest.fixture
def world(shared_world):
    """One router before one replica, kept over the module; the replica forgets between tests."""
    shared_world.replica.script = answer_ok
    shared_world.replica.read_bodies = True
    shared_world.replica.requests.clear()
    yield shared_world
    assert shared_world.router.alive(), shared_world.router.output()
