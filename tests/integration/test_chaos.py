"""What the chaos run looks at: that it sees what it is there to see."""

import json

import pytest
from chaos import answers
from chaos.answers import CUT, FAILED, FALSE_WHOLE, FOREIGN, GOOD, Answer, Prompts, Request, judge
from chaos.disturbances import plan
from support.processes import POINTSMAN, Listening
from support.wire import Client

MARK = "c001-000001-0badcafe"
PROMPTS = Prompts(["some words before the mark: "])


def request(chat=True, stream=False, tokens=3):
    prompt_hash = PROMPTS.hash(chat, 0, MARK)
    return Request(
        mark=MARK, kind="", chat=chat, stream=stream, tokens=tokens, prompt_hash=prompt_hash
    )


def event(of, text, finish=None, id=None):
    data = {"id": id or of.answer_id, "choices": [{"delta": {"content": text}, "finish_reason": finish}]}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def whole(of):
    words = [of.text[at : at + 4] for at in range(0, len(of.text), 4)]
    events = [event(of, word) for word in words[:-1]] + [event(of, words[-1], "length")]
    return b"".join(events) + b"data: [DONE]\n\n"


def answer(body, ending="whole", framing="chunked", mark=MARK):
    fields = {"x-request-id": mark}
    return Answer(200, fields, body, ending, framing, began=True)


def verdict(of, got):
    return judge(of, got)[0]


def test_a_whole_stream_is_good_and_its_beginning_is_a_cut():
    of = request(stream=True)
    body = whole(of)
    assert verdict(of, answer(body)) == GOOD
    for ending in ("closed", "reset"):
        assert all(verdict(of, answer(body[:at], ending)) == CUT for at in range(len(body)))


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_beginning_of_a_stream_with_an_end_is_a_false_whole(framing):
    of = request(stream=True)
    body = whole(of)
    ends = [at + 2 for at in range(len(body)) if body[at : at + 2] == b"\n\n"]
    assert len(ends) == 4
    for end in [0, *ends[:-1], len(body) - 1]:
        assert verdict(of, answer(body[:end], framing=framing)) == FALSE_WHOLE


def test_an_error_event_shows_a_cut_unless_an_end_is_faked_behind_it():
    of = request(stream=True)
    body = event(of, of.text[:4]) + b'data: {"error":{"message":"lost"}}\n\n'
    assert verdict(of, answer(body, "closed")) == CUT
    assert verdict(of, answer(body, "whole", "close")) == CUT
    assert verdict(of, answer(body, "whole", "chunked")) == FALSE_WHOLE


def test_anothers_bytes_are_seen():
    of = request(stream=True)
    first = event(of, of.text[:4])
    assert verdict(of, answer(first + event(of, of.text[4:8], id="chatcmpl-else"), "reset")) == FOREIGN
    assert verdict(of, answer(first + event(of, "zzz "), "reset")) == FOREIGN
    assert verdict(of, answer(first + first, "reset")) == FOREIGN
    assert verdict(of, answer(whole(of) + first)) == FOREIGN
    assert verdict(of, answer(whole(of), mark="c002-000001-0badcafe")) == FOREIGN


def test_a_whole_body_must_be_the_expected_one():
    of = request()

    def body(text, id=of.answer_id):
        return json.dumps({"id": id, "choices": [{"message": {"content": text}}]}).encode()

    assert verdict(of, answer(body(of.text), framing="length")) == GOOD
    assert verdict(of, answer(body(of.text[:4]), framing="length")) == FALSE_WHOLE
    assert verdict(of, answer(body("zzz "), framing="length")) == FOREIGN
    assert verdict(of, answer(body(of.text, "chatcmpl-else"), framing="length")) == FOREIGN


def test_an_error_or_a_silent_end_is_a_failure():
    assert verdict(request(), Answer()) == FAILED
    assert verdict(request(), Answer(502, {"x-request-id": MARK}, ending="whole", began=True)) == FAILED


@pytest.mark.parametrize("chat", [True, False])
def test_the_answer_is_known_beforehand(start, chat):
    """Prompts of all lengths: whole tokens or not."""
    replica = start(Listening([POINTSMAN, "replica", "--listen", "127.0.0.1:0", "--speed", 100]))
    with Client(replica.url) as client:
        for length in range(1, 9):
            begin = "b" * length
            text = begin + MARK
            prompt = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
            path = "/v1/chat/completions" if chat else "/v1/completions"
            (choice,) = client.post(path, {"max_tokens": 5, **prompt}).response().json["choices"]
            got = choice["message"]["content"] if chat else choice["text"]
            prompt_hash = Prompts([begin]).hash(chat, 0, MARK)
            assert got == answers.answer_text(prompt_hash, 5)


def test_a_seed_is_a_plan():
    assert plan(7, 60) == plan(7, 60)
    assert plan(7, 60) != plan(8, 60)
