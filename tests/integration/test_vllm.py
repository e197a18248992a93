"""Two real vLLM servers and the cache that they tell of: `./dev test --engines vllm`.

What a router foretells of a request's cached tokens is compared with what the engine then reports
in its usage, and the same is shown of routers without events, before vLLM and before llama.cpp.
"""

import contextlib
import types

import pytest
from support import llama_fleet, vllm_fleet
from support.conversations import Traffic, described, share_within
from support.processes import until
from support.router import Router
from support.wire import Client

pytestmark = pytest.mark.engines
BLOCK = vllm_fleet.BLOCK_TOKENS
REQUESTS = 300  # Of each arm.


@pytest.fixture(scope="module")
def engines():
    """Two servers: the router connects to the first one, and the second one to the router."""
    environment = vllm_fleet.environment()
    port = vllm_fleet.free_port()
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(vllm_fleet.Vllm(environment, connect)) for connect in (None, port)
        ]
        vllm_fleet.start_all(servers)
        yield types.SimpleNamespace(servers=servers, bind=f"tcp://127.0.0.1:{port}")


@contextlib.contextmanager
def router_before(replicas, folder, **settings):
    """A router of the default policy, and its access log."""
    log = folder / "access.log"
    with Router(replicas, policy="least_work", log={"access": str(log)}, **settings) as router:
        router.wait_models()
        yield router, log


def tokenizers():
    return [{"models": ["tiny"], "path": str(vllm_fleet.TOKENIZER)}]


def ranks(router):
    with Client(router.urls["admin"]) as client:
        replicas = client.get("/v1/replicas").json["replicas"]
    return [rank for replica in replicas for rank in replica["kv_events"]]


def all_trusted(router):
    found = ranks(router)
    return len(found) == 2 and all(rank["trust"] == "trusted" for rank in found)


def answers_by(router, knowledge):
    return router.metrics()[f'pointsman_cached_tokens_answers_total{{from="{knowledge}"}}']


def test_events_foretell_what_the_engine_finds(engines, tmp_path, capsys):
    replicas = [server.replica() for server in engines.servers]
    settings = {"tokenizers": tokenizers(), "kv_events": {"bind": engines.bind}}
    with router_before(replicas, tmp_path, **settings) as (router, log):
        until(lambda: all_trusted(router), what="both engines are trusted")
        traffic = Traffic(router, log, seed=1)
        before = traffic.run(REQUESTS // 2)
        restarted = engines.servers[1]
        restarted.stop()
        meanwhile = traffic.run(10)
        assert {request.replica for request in meanwhile} == {engines.servers[0].url}
        restarted.start()
        until(lambda: all_trusted(router), 60, what="both engines are trusted again")
        after = traffic.run(REQUESTS // 2)
        requests = before + meanwhile + after
        with capsys.disabled():
            print("\n" + described("vLLM x2, their events", requests, BLOCK))
            print(described("  of these after a restart", after, BLOCK))
        both = {server.url for server in engines.servers}
        for some in (before, after):
            assert {request.replica for request in some} == both
            assert share_within(some, BLOCK) >= 0.99
        assert all(request.own_prompt_tokens == request.prompt_tokens for request in requests)
        # There was something to foretell, and to be wrong about.
        assert sum(r.found for r in requests) > 0.3 * sum(r.prompt_tokens for r in requests)
        assert router.metric("pointsman_kv_events_restarts_total") == 1
        assert answers_by(router, "events") == len(requests)
        removed = [v for k, v in router.metrics().items() if 'event="removed"' in k]
        assert sum(removed) > vllm_fleet.BLOCKS


def test_without_events_the_error_is_shown(engines, tmp_path, capsys):
    urls = [server.url for server in engines.servers]
    arms = {"token ids": {"tokenizers": tokenizers()}, "text": {}}
    for seed, (name, more) in enumerate(arms.items(), 2):
        folder = tmp_path / name
        folder.mkdir()
        with router_before(urls, folder, **more) as (router, log):
            requests = Traffic(router, log, seed).run(REQUESTS)
            assert answers_by(router, "sent") == len(requests)
        with capsys.disabled():
            print("\n" + described(f"vLLM x2, the approximate index by {name}", requests, BLOCK))


def test_events_tell_what_others_send(engines, tmp_path, capsys):
    """A chat past the router between any two bursts."""
    beside = [server.url for server in engines.servers]
    arms = {"their events": {"kv_events": {"bind": engines.bind}}, "the approximate index": {}}
    shares = {}
    for seed, (name, more) in enumerate(arms.items(), 5):
        folder = tmp_path / name
        folder.mkdir()
        replicas = [server.replica() for server in engines.servers] if more else beside
        settings = {"tokenizers": tokenizers(), **more}
        with router_before(replicas, folder, **settings) as (router, log):
            if more:
                until(lambda: all_trusted(router), what="both engines are trusted")
            requests = Traffic(router, log, seed, beside=beside).run(REQUESTS // 2)
        shares[name] = share_within(requests, BLOCK)
        with capsys.disabled():
            print("\n" + described(f"vLLM x2 that others use too, {name}", requests, BLOCK))
    assert shares["their events"] >= 0.99


def test_llama_cpp_beside_it(tmp_path, capsys):
    vllm_fleet.environment()
    with llama_fleet.fleet(4) as urls, router_before(urls, tmp_path) as (router, log):
        requests = Traffic(router, log, seed=4, sessions=20, salts=False).run(REQUESTS)
    with capsys.disabled():
        print("\n" + described("llama.cpp x4, the approximate index by text", requests, BLOCK))
