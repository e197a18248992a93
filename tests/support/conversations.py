"""Conversations that share system prompts, and how far a router foresees what engines have cached.

The engines' own word is `usage.prompt_tokens_details.cached_tokens` of each answer; the router's is
in its access log.
"""

import collections
import concurrent.futures
import dataclasses
import json
import random

from support.make_tiny_model import WORDS
from support.processes import until
from support.wire import Client

VOCABULARY = range(5, 2000)  # Of the tiny model, without its special tokens.
# Of the histogram of errors, from -3 to 3.
PLACES = ["below -128", "-128 to -33", "-32 to -1", "0", "1 to 32", "33 to 128", "above 128"]


class System:
    """What conversations begin with."""

    def __init__(self, rng):
        self.text = " ".join(rng.choices(WORDS, k=rng.randrange(60, 200)))
        self.ids = rng.choices(VOCABULARY, k=rng.randrange(80, 260))


class Conversation:
    """Chats (most), texts or token ids that grow by a question and an answer at each turn."""

    def __init__(self, rng, system, salts):
        self._rng = rng
        self.form = rng.choice(["chat"] * 4 + ["text", "ids"])
        self._salt = {"cache_salt": f"salt {rng.random()}"} if salts and rng.random() < 0.1 else {}
        self._messages = [{"role": "system", "content": system.text}]
        self._text, self._ids = system.text, list(system.ids)
        self._turns = rng.randrange(3, 8)

    def ended(self):
        return self._turns == 0

    def ask(self):
        """The path and the body of its next turn."""
        self._turns -= 1
        count = self._rng.randrange(15, 60)
        question = " ".join(self._rng.choices(WORDS, k=count))
        body = {"model": "tiny", "max_tokens": self._rng.randrange(2, 16), "temperature": 0}
        body |= self._salt
        if self._rng.random() < 0.5:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.form == "chat":
            self._messages.append({"role": "user", "content": question})
            return "/v1/chat/completions", body | {"messages": self._messages}
        self._text += f"\n{question}\n"
        self._ids += self._rng.choices(VOCABULARY, k=count)
        prompt = self._text if self.form == "text" else self._ids
        return "/v1/completions", body | {"prompt": prompt}

    def answered(self, text):
        self._messages.append({"role": "assistant", "content": text})
        self._text += text


@dataclasses.dataclass
class Foreseen:
    """A request: what the router expected of it and what the engine found."""

    replica: str
    prompt_tokens: int  # As the engine counts them.
    own_prompt_tokens: int  # As the router does.
    expected: int
    found: int

    @property
    def error(self):
        return self.expected - self.found


def post(asked):
    """The text and the usage of an answer, which may be a stream."""
    url, name, path, body = asked
    with Client(url) as client:
        answer = client.post(path, body, [("X-Request-Id", name)]).response()
    assert answer.status == 200 and answer.complete, (answer.status, answer.body)
    lines = answer.body.splitlines() if body.get("stream") else [b"data: " + answer.body]
    events = [json.loads(line[6:]) for line in lines if line[:7] == b"data: {"]
    text = ""
    for choice in (event["choices"][0] for event in events if event["choices"]):
        said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
        text += said.get("content") or ""
    return text, events[-1]["usage"]


class Traffic:
    """Conversations through a router whose access log is `log`: bursts of one to three turns.

    Between them, chats of others go to the engines `beside`, past the router.
    """

    def __init__(self, router, log, seed, sessions=10, salts=True, beside=()):
        self._router, self._log = router, log
        self._beside = beside
        self._rng = random.Random(seed)
        self._salts = salts
        self._systems = [System(self._rng) for _ in range(4)]
        self._sessions = [self._new_session() for _ in range(sessions)]
        self._sent = 0

    def _new_session(self):
        return Conversation(self._rng, self._rng.choice(self._systems), self._salts)

    def run(self, requests):
        """What came of so many requests, as `Foreseen`."""
        answers = {}
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            while len(answers) < requests:
                if self._rng.random() < 0.03:
                    self._systems[self._rng.randrange(4)] = System(self._rng)
                size = self._rng.choice([1, 1, 2, 3])
                places = self._rng.sample(range(len(self._sessions)), size)
                burst = [self._sessions[place] for place in places]
                asked = []
                for session in burst:
                    self._sent += 1
                    asked.append((self._router.url, f"turn-{self._sent}", *session.ask()))
                outcomes = pool.map(post, asked)
                for session, request, (text, usage) in zip(burst, asked, outcomes):
                    session.answered(text)
                    answers[request[1]] = usage
                if self._beside:
                    chat = Conversation(self._rng, System(self._rng), salts=False)
                    post((self._rng.choice(self._beside), "beside", *chat.ask()))
                for place in places:
                    if self._sessions[place].ended():
                        self._sessions[place] = self._new_session()
        return self._foreseen(answers)

    def _foreseen(self, answers):
        def lines():
            found = [json.loads(line) for line in self._log.read_text().splitlines()]
            named = {line["request_id"]: line for line in found}
            return named if answers.keys() <= named.keys() else None

        named = until(lines, what="the lines of the log")
        return [
            Foreseen(
                replica=named[name]["replica"],
                prompt_tokens=usage["prompt_tokens"],
                own_prompt_tokens=named[name]["prompt_tokens"],
                expected=named[name].get("predicted_cached", 0),
                found=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            )
            for name, usage in answers.items()
        ]


def share_within(requests, tokens):
    return sum(abs(request.error) <= tokens for request in requests) / len(requests)


def place_of(error):
    size = (error != 0) + (abs(error) > 32) + (abs(error) > 128)
    return size if error > 0 else -size


def described(name, requests, block):
    """A paragraph for people."""
    errors = [request.error for request in requests]
    found = sum(request.found for request in requests)
    prompts = sum(request.prompt_tokens for request in requests)
    sizes = collections.Counter(place_of(error) for error in errors)
    histogram = ", ".join(f"{label}: {sizes[place]}" for place, label in enumerate(PLACES, -3))
    return "\n".join(
        [
            f"{name}: {len(requests)} requests,"
            f" {found / prompts:.0%} of {prompts} prompt tokens cached",
            f"  exact: {share_within(requests, 0):.1%}, within {block} tokens:"
            f" {share_within(requests, block):.1%}; foretold too many:"
            f" {sum(e for e in errors if e > 0) / found:.2%}, too few:"
            f" {-sum(e for e in errors if e < 0) / found:.2%} of the tokens found",
            f"  expected less found, in tokens: {histogram}",
        ]
    )
