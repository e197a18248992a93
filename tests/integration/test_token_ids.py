"""Prompts by their token ids, end to end, against what vLLM made of the same requests."""

import json
import pathlib
import subprocess

import pytest

from support.processes import POINTSMAN, until
from support.router import Router
from support.wire import Replica

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "data/tokens"
VECTORS = json.loads((FOLDER / "vectors-vllm.json").read_text())


def token_ids_built():
    """Whether the program was made with a Rust toolchain; it says so itself where it was not."""
    words = [POINTSMAN, "tokenize", "--model", FOLDER]
    return subprocess.run(words, input=b'{"text":"a"}\n', capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not token_ids_built(), reason="this build makes no token ids")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A router that knows the tokenizer of the model, before one replica; and its access log."""
    log = tmp_path_factory.mktemp("log") / "access.log"
    tokenizers = [{"models": ["m1"], "path": str(FOLDER)}]
    with Replica() as replica:
        settings = {"tokenizers": tokenizers, "log": {"access": str(log)}}
        with Router([replica], policy="least_work", **settings) as router:
            yield router, log


def prompt_tokens(tiny, path, bodies):
    """What the router counted for each of the requests; the replica tells no usage."""
    router, log = tiny
    before = log.read_text().count("\n") if log.exists() else 0
    with router.client() as client:
        for body in bodies:
            assert client.post(path, json.dumps(body).encode()).response().status == 200
    until(lambda: log.read_text().count("\n") == before + len(bodies), what="the lines of the log")
    return [json.loads(line)["prompt_tokens"] for line in log.read_text().splitlines()[before:]]


def test_every_chat_has_the_tokens_that_vllm_counts(tiny):
    chats = VECTORS["chats"]
    bodies = [{"model": "m1", **chat["request"]} for chat in chats]
    tokenized = tiny[0].metric("pointsman_prompts_tokenized_total")
    assert prompt_tokens(tiny, "/v1/chat/completions", bodies) == [len(c["ids"]) for c in chats]
    assert tiny[0].metric("pointsman_prompts_tokenized_total") == tokenized + len(chats)


def test_every_text_has_the_tokens_that_vllm_counts(tiny):
    texts = [text for text in VECTORS["texts"] if text["text"]]
    bodies = [{"model": "m1", "prompt": text["text"]} for text in texts]
    assert prompt_tokens(tiny, "/v1/completions", bodies) == [len(t["ids"]) for t in texts]


def test_ids_and_their_text_are_one_prompt_for_the_index(tiny):
    router, log = tiny
    text = next(t for t in VECTORS["texts"] if len(t["ids"]) >= 48)
    with router.client() as client:
        for prompt in (text["text"], text["ids"]):
            body = {"model": "m1", "prompt": prompt, "cache_salt": "one prompt"}
            client.post("/v1/completions", json.dumps(body).encode()).response()
    until(lambda: log.read_text().count("\n") >= 2, what="the lines of the log")

    def predicted():
        return json.loads(log.read_text().splitlines()[-1]).get("predicted_cached", 0)

    until(lambda: predicted() >= 32, what="the ids find the text's blocks")


def test_a_chat_that_the_template_refuses_goes_to_the_engine_all_the_same(tiny):
    messages = [{"role": "alien", "content": "x"}]
    bodies = [{"model": "m1", "messages": messages}]
    assert prompt_tokens(tiny, "/v1/chat/completions", bodies)[0] > 0
    name = 'pointsman_prompts_not_tokenized_total{reason="template"}'
    assert tiny[0].metrics()[name] == 1


def test_a_long_prompt_is_counted_by_its_ids_too(tiny):
    def words(count):
        bodies = [{"model": "m1", "prompt": "word " * count}]
        return prompt_tokens(tiny, "/v1/completions", bodies)[0]

    encoded = tiny[0].metric("pointsman_prompts_tokenized_total")
    short, middle = words(1000), words(2000)
    assert words(20_000) == short + 19 * (middle - short)
    assert tiny[0].metric("pointsman_prompts_tokenized_total") == encoded + 3
