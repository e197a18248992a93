"""What the simulated model answers, computed apart from it, and the verdict on what a client got.

A prompt's answer follows from the prompt alone (src/replica/prompt.h), and each prompt here holds
the mark of its request: an answer that is the expected one has come from this request's own bytes,
all of them, and from no other.
"""

import dataclasses
import functools
import json

MASK = (1 << 64) - 1
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def mix(a, b):
    z = (((a << 25) | (a >> 39)) * 0x9E3779B97F4A7C15 + b) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def hash_bytes(data, state):
    """`state` goes on with the tokens of `data`: one for each 4 bytes, the last one filled up."""
    for at in range(0, len(data), 4):
        state = mix(state, int.from_bytes(data[at : at + 4], "little"))
    return state


def filled(text):
    return text + b"\n" * (-len(text) % 4)


def answer_text(prompt_hash, tokens):
    words = []
    for index in range(tokens):
        bits = mix(prompt_hash, index)
        words.append(LETTERS[bits % 26] + LETTERS[bits // 26 % 26] + LETTERS[bits // 676 % 26])
    return " ".join(words) + " " if words else ""


class Prompts:
    """Prompts of a few long beginnings, so that hashing them costs no more than their ends."""

    def __init__(self, beginnings):
        self.beginnings = beginnings

    @functools.lru_cache(maxsize=None)
    def _begun(self, chat, number, mark_bytes):
        """(state after the beginning, its bytes that are not in whole tokens, what follows the mark)"""
        begin = self.beginnings[number].encode()
        if chat:
            whole = filled(b"<|user|>\n") + begin
            rendered = filled(whole + b"-" * mark_bytes) + b"<|end|>\n<|assistant|>\n"
            end = filled(rendered)[len(whole) + mark_bytes :]
        else:
            whole, end = begin, b""
        tokens = (len(whole) + mark_bytes + len(end) + 3) // 4
        cut = len(whole) // 4 * 4
        return hash_bytes(whole[:cut], tokens), whole[cut:], end

    def text(self, number, mark):
        return self.beginnings[number] + mark

    def hash(self, chat, number, mark):
        state, rest, end = self._begun(chat, number, len(mark))
        return hash_bytes(rest + mark.encode() + end, state)


@dataclasses.dataclass
class Request:
    """One request and what is known of its answer."""

    mark: str
    kind: str
    raw: bytes = b""
    method: str = "POST"
    chat: bool = True
    stream: bool = False
    tokens: int = 0  # of the answer
    prompt_hash: int = 0
    held: bool = True  # the router can send it again
    expected: tuple = (200,)  # statuses of requests that are no completions
    completion: bool = True

    @property
    def answer_id(self):
        return ("chatcmpl-" if self.chat else "cmpl-") + self.mark

    @functools.cached_property
    def text(self):
        return answer_text(self.prompt_hash, self.tokens)


@dataclasses.dataclass
class Answer:
    """What came. `ending`: `whole` by its framing, `closed` or `reset` before that."""

    status: int = 0  # 0: no whole head
    fields: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    ending: str = "closed"
    framing: str = ""
    began: bool = False  # any byte

    @property
    def word(self):
        return self.fields.get("x-pointsman-error", "")

    @property
    def keeps(self):
        return self.ending == "whole" and self.framing != "close" and (
            self.fields.get("connection", "").lower() != "close"
        )


# Verdicts.
GOOD = "good"
CUT = "cut, and visibly so"
FAILED = "failed before its first byte"
FALSE_WHOLE = "a truncated answer that passes for a whole one"
FOREIGN = "bytes that are not its own"
MALFORMED = "malformed"


def judge(request, answer):
    """(verdict, why)"""
    if not answer.began:
        return FAILED, f"the connection was {answer.ending} without a byte"
    if answer.status == 0:
        return CUT, "within the head"
    # An answer to what could not be read as a request has a mark of the router's own.
    if 400 not in request.expected and answer.fields.get("x-request-id") != request.mark:
        return FOREIGN, f"x-request-id is {answer.fields.get('x-request-id')}"
    if not request.completion:
        if answer.status not in request.expected:
            return FAILED, f"{answer.status} {answer.word}"
        return (GOOD, "") if answer.ending == "whole" else (CUT, "")
    if answer.status != 200:
        return FAILED, f"{answer.status} {answer.word}"
    return judge_stream(request, answer) if request.stream else judge_whole(request, answer)


def judge_whole(request, answer):
    if answer.ending != "whole":
        begin = b'{"id":"%s"' % request.answer_id.encode()
        same = begin.startswith(answer.body[: len(begin)])
        return (CUT, "") if same else (FOREIGN, repr(answer.body[:80]))
    try:
        body = json.loads(answer.body)
        (choice,) = body["choices"]
        text = choice["message"]["content"] if request.chat else choice["text"]
        if body["id"] != request.answer_id:
            return FOREIGN, f"id {body['id']}"
    except (ValueError, KeyError, TypeError) as error:
        return FALSE_WHOLE, f"{error!r} in {answer.body[:200]!r}"
    if text == request.text:
        return GOOD, ""
    return (FALSE_WHOLE if request.text.startswith(text) else FOREIGN), f"text {text[:80]!r}"


def judge_stream(request, answer):
    *events, rest = answer.body.split(b"\n\n")
    text, done, finished, error = [], False, False, ""
    for event in events:
        if done or error:
            return FOREIGN, f"behind the end: {event[:80]!r}"
        if not event.startswith(b"data: "):
            return MALFORMED, repr(event[:80])
        if event == b"data: [DONE]":
            done = True
            continue
        try:
            data = json.loads(event[6:])
        except ValueError:
            return MALFORMED, repr(event[:80])
        if "error" in data:
            error = str(data["error"])
            continue
        if data["id"] != request.answer_id:
            return FOREIGN, f"id {data['id']}"
        for choice in data["choices"]:
            text.append((choice["delta"].get("content", "") if request.chat else choice["text"]))
            finished = finished or bool(choice["finish_reason"])
    text = "".join(text)
    if not request.text.startswith(text):
        return FOREIGN, f"text {text[:80]!r}"
    if answer.ending != "whole":
        return CUT, error
    if error:
        # Only where the end of the connection is that of the answer has it an end.
        return (CUT, error) if answer.framing == "close" else (FALSE_WHOLE, "an end after an error")
    if done and finished and not rest and text == request.text:
        return GOOD, ""
    return FALSE_WHOLE, f"{len(text) // 4} of {request.tokens} tokens, [DONE]: {done}"
