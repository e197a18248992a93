"""Mixed load on the router: each client takes its choices from the seed and its number."""

import asyncio
import collections
import json
import random
import time

from chaos.answers import CUT, FAILED, FALSE_WHOLE, FOREIGN, GOOD, MALFORMED, Prompts, Request, judge
from chaos.connection import Connection, Ended, Garbled

MODEL = "sim"
MAX_HELD = 256 * 1024  # features.max_body of the router
TUNNEL_PATH = "/v1/realtime"
TUNNEL_TEXT = " ".join(f"frame-{number:03}" for number in range(100)).encode()

# No request may take longer than this, whatever happens: then something hangs.
HANGS_S = 120

# What a client may do, and how often.
KINDS = {
    "short JSON": 22,
    "long JSON": 8,
    "chat stream": 26,
    "completion stream": 14,
    "HTTP/1.0": 6,
    "big body": 4,
    "pipelined": 5,
    "client leaves": 8,
    "slow reader": 3,
    "reads nothing": 1,
    "upgrade": 2,
    "health": 4,
    "refused": 3,
}


class Traffic:
    def __init__(self, url, seed, clients):
        host, port = url.removeprefix("http://").rsplit(":", 1)
        self.address = (host, int(port))
        self.seed = seed
        self.clients = clients
        self.stopping = asyncio.Event()
        words = random.Random(f"{seed}/words")
        self.prompts = Prompts(
            [
                "".join(words.choices("abcdefghijklmnopqrstuvwxyz    ", k=size))
                for size in (40, 400, 400, 4000, 4000, 24000)
            ]
        )
        self.pad = b"p" * (4 << 20)
        self.asked = collections.Counter()
        self.verdicts = {kind: collections.Counter() for kind in KINDS}
        self.failed = []  # before a byte, not excused
        self.excused = collections.Counter()
        self.wrong = []  # false wholes, foreign bytes, malformed answers
        self.hung = []
        self.longest = {}  # of each kind: seconds, mark, and what the client did
        self.bytes = 0
        self.streams_whole = 0

    async def run(self):
        self.begin = time.monotonic()
        tasks = [asyncio.create_task(self._client(number)) for number in range(self.clients)]
        await self.stopping.wait()
        await asyncio.gather(*tasks)

    async def _client(self, number):
        client = Client(self, number)
        while not self.stopping.is_set():
            await client.step()
        client.leave()

    def count(self, request, answer, verdict, why, unserved=False):
        self.bytes += len(answer.body)
        if verdict == FAILED and (excuse := self._excuse(request, answer, unserved)):
            self.excused[excuse] += 1
            verdict = f"excused: {excuse}"
        elif verdict == FAILED:
            self.failed.append(self._told(request, answer, verdict, why))
        elif verdict in (FALSE_WHOLE, FOREIGN, MALFORMED):
            self.wrong.append(self._told(request, answer, verdict, why))
        self.streams_whole += verdict == GOOD and request.stream
        self.verdicts[request.kind][verdict] += 1

    def _told(self, request, answer, verdict, why):
        return {
            "at_s": round(time.monotonic() - self.begin, 3),
            "mark": request.mark,
            "kind": request.kind,
            "stream": request.stream,
            "tokens": request.tokens,
            "verdict": verdict,
            "why": why,
            "status": answer.status,
            "ending": answer.ending,
            "framing": answer.framing,
            "fields": answer.fields,
            "body_end": answer.body[-300:].decode("latin-1"),
        }

    @staticmethod
    def _excuse(request, answer, unserved):
        """Where the router may not try again, or was never asked; see docs/chaos.md."""
        if unserved:
            return "behind the end of its connection"
        if not request.held and (answer.status >= 429 or answer.status == 0):
            return "its body streamed through"
        if request.kind == "upgrade" and answer.word in ("connection_lost", "bad_answer"):
            return "not safe to be sent twice"
        return None


class Client:
    """One client: a sequence of requests, often over the same connection."""

    def __init__(self, traffic, number):
        self.traffic = traffic
        self.number = number
        self.turn = 0
        self.random = random.Random(f"{traffic.seed}/client/{number}")
        self.connection = None
        self.steps = {
            "short JSON": lambda: self.ask(stream=False, most=12),
            "long JSON": lambda: self.ask(stream=False, most=300),
            "chat stream": lambda: self.ask(chat=True, stream=True, most=120),
            "completion stream": lambda: self.ask(chat=False, stream=True, most=120),
            "HTTP/1.0": lambda: self.ask(most=60, version="1.0"),
            "big body": self.ask_big,
            "pipelined": self.ask_pipelined,
            "client leaves": self.ask_and_leave,
            "slow reader": self.read_slowly,
            "reads nothing": self.read_nothing,
            "upgrade": self.upgrade,
            "health": self.health,
            "refused": self.be_refused,
        }

    async def step(self):
        kind = self.random.choices(list(KINDS), KINDS.values())[0]
        self.kind = kind
        self.traffic.asked[kind] += 1
        self.how = ""
        begin = time.monotonic()
        try:
            await asyncio.wait_for(self.steps[kind](), HANGS_S)
        except TimeoutError:
            self.traffic.hung.append({"kind": kind, "mark": self.last_mark})
            self.leave()
        except Garbled as error:
            self.traffic.wrong.append({"kind": kind, "mark": self.last_mark, "why": str(error)})
            self.leave()
        except ConnectionError as error:
            self.traffic.failed.append({"kind": kind, "why": f"no connection: {error}"})
            self.leave()
        took = (round(time.monotonic() - begin, 3), self.last_mark, self.how)
        self.traffic.longest[kind] = max(self.traffic.longest.get(kind, took), took)

    def leave(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    async def connected(self, **more):
        """The client's connection, at times a new one."""
        if more or (self.connection and self.random.random() < 0.15):
            self.leave()
        if not self.connection:
            self.connection = await Connection.open(self.traffic.address, **more)
        return self.connection

    # --- requests ---------------------------------------------------------------------------------

    def _mark(self):
        self.turn += 1
        self.last_mark = f"c{self.number:03}-{self.turn:06}-{self.random.getrandbits(32):08x}"
        return self.last_mark

    def completion(self, most, chat=None, stream=None, version="1.1", pad=0, chunks=0, fields=b""):
        draw = self.random
        mark = self._mark()
        chat = draw.random() < 0.5 if chat is None else chat
        stream = draw.random() < 0.5 if stream is None else stream
        tokens = draw.randint(1, most)
        number = draw.choices(range(6), (6, 3, 3, 1, 1, 0.3))[0]
        text = self.traffic.prompts.text(number, mark)
        # What is looked at comes last, behind all that may be large.
        body = b'{"model":"%s","max_tokens":%d' % (MODEL.encode(), tokens)
        if stream:
            body += b',"stream":true'
            if draw.random() < 0.3:
                body += b',"stream_options":{"include_usage":true}'
        if pad:
            body += b',"pad":"%s"' % self.traffic.pad[:pad]
        message = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
        body += b"," + json.dumps(message).encode()[1:]
        path = b"/v1/chat/completions" if chat else b"/v1/completions"
        head = b"POST %s HTTP/%s\r\nHost: chaos\r\nX-Request-Id: %s\r\n%s" % (
            path, version.encode(), mark.encode(), fields
        )
        head += b"Content-Type: application/json\r\n"
        if chunks:
            head += b"Transfer-Encoding: chunked\r\n\r\n"
            pieces = [body[at : at + chunks] for at in range(0, len(body), chunks)]
            raw = head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
        else:
            raw = head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        return Request(
            mark=mark, kind=self.kind, raw=raw, chat=chat, stream=stream, tokens=tokens,
            prompt_hash=self.traffic.prompts.hash(chat, number, mark), held=len(body) <= MAX_HELD,
        )

    def plain(self, method, target, expected, more=b""):
        mark = self._mark()
        raw = b"%s %s HTTP/1.1\r\nHost: chaos\r\nX-Request-Id: %s\r\n%s\r\n" % (
            method.encode(), target.encode(), mark.encode(), more
        )
        return Request(
            mark=mark, kind=self.kind, raw=raw, method=method, completion=False, expected=expected
        )

    def take(self, request, answer):
        self.traffic.count(request, answer, *judge(request, answer))
        if not answer.keeps:
            self.leave()

    async def ask(self, most, version="1.1", **what):
        request = self.completion(most, version=version, **what)
        connection = await self.connected()
        await connection.send(request.raw)
        answer = await connection.answer()
        self.take(request, answer)

    async def ask_big(self):
        """Half of them larger than what the router holds, and some slowly."""
        draw = self.random
        pad = draw.choice([MAX_HELD // 8, MAX_HELD // 2, MAX_HELD * 2, MAX_HELD * 8])
        expect = b"Expect: 100-continue\r\n" if draw.random() < 0.2 else b""
        chunks = draw.choice([0, 0, 1000, 60000]) if pad < 4 * MAX_HELD else draw.choice([0, 60000])
        request = self.completion(60, pad=pad, chunks=chunks, fields=expect)
        connection = await self.connected()
        pause_s = draw.choice([0, 0, 0, 0.01])
        piece = draw.choice([20_000, 100_000])

        async def send():
            for at in range(0, len(request.raw), piece):
                await connection.send(request.raw[at : at + piece])
                await asyncio.sleep(pause_s)

        sending = asyncio.create_task(send())
        try:
            answer = await connection.answer()
        finally:
            # Where it was answered before its end, nobody takes the rest.
            early = not sending.done()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        self.take(request, answer)
        if early:
            self.leave()

    async def ask_pipelined(self):
        requests = []
        for _ in range(self.random.randint(2, 8)):
            what = self.random.random()
            if what < 0.6:
                requests.append(self.completion(20))
            elif what < 0.8:
                requests.append(self.plain("GET", "/v1/models", (200,)))
            else:
                requests.append(self.plain("GET", "/healthz", (200,)))
        connection = await self.connected()
        await connection.send(b"".join(request.raw for request in requests))
        unserved = False
        for request in requests:
            answer = await connection.answer(request.method)
            self.traffic.count(request, answer, *judge(request, answer), unserved=unserved)
            unserved = unserved or not answer.keeps
        if unserved:
            self.leave()

    async def ask_and_leave(self):
        draw = self.random
        request = self.completion(200)
        connection = await self.connected()
        how = draw.choice(["within the request", "waiting", "within the answer"])
        end = draw.choice([connection.close, connection.reset, connection.half_close])
        self.how = f"{how}: {end.__name__}"
        if how == "within the request":
            await connection.send(request.raw[: draw.randrange(1, len(request.raw))])
        else:
            await connection.send(request.raw)
        if how == "within the answer":
            # Fewer than the shortest answer has.
            await connection.first_bytes(draw.randint(1, 300))
        else:
            await asyncio.sleep(draw.choice([0, 0, 0.01, 0.1]))
        end()
        if end == connection.half_close:
            # The same as leaving, so the router ends the connection.
            await connection.ended()
        self.leave()

    async def read_slowly(self):
        request = self.completion(400, stream=True)
        connection = await self.connected(receive_buffer=4096)
        connection.pause_s = self.random.choice([0.005, 0.02, 0.05])
        connection.piece = 2048
        await connection.send(request.raw)
        self.take(request, await connection.answer())
        self.leave()

    async def read_nothing(self):
        """Until it leaves, or until the router does."""
        request = self.completion(2000, stream=True)
        connection = await self.connected(receive_buffer=2048)
        await connection.send(request.raw)
        try:
            await asyncio.wait_for(
                self.traffic.stopping.wait(), self.random.choice([1, 2, 3, 20])
            )
        except TimeoutError:
            pass
        connection.reset()
        self.connection = None

    async def upgrade(self):
        request = self.plain(
            "GET", TUNNEL_PATH, (101, 404), b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        )
        connection = await self.connected()
        await connection.send(request.raw)
        await connection.send(b"a frame of the client's")
        answer = await connection.answer("GET")
        verdict, why = judge(request, answer)
        if answer.status == 101 and not TUNNEL_TEXT.startswith(answer.body):
            verdict, why = FOREIGN, repr(answer.body[:80])
        elif answer.status == 101 and answer.body != TUNNEL_TEXT:
            verdict = CUT
        self.traffic.count(request, answer, verdict, why)
        self.leave()

    async def health(self):
        draw = self.random
        target = draw.choice(["/healthz", "/readyz", "/health", "/v1/models"])
        method = draw.choice(["GET", "GET", "HEAD"]) if target != "/v1/models" else "GET"
        request = self.plain(method, target, (200,))
        connection = await self.connected()
        await connection.send(request.raw)
        self.take(request, await connection.answer(method))

    async def be_refused(self):
        what = self.random.randrange(5)
        if what == 0:
            request = self.plain("GET", "/metrics", (404,))
        elif what == 1:
            request = self.plain("GET", "/v1/../metrics", (400,))
        elif what == 2:
            request = self.plain("GET", "/v1/models", (400,), b"Bad Name: x\r\n")
        elif what == 3:
            request = self.plain("GET", "/v1/models", (400, 431), b"x: y\r\n" * 3000)
        else:
            request = self.plain(
                "POST", "/v1/completions", (400,), b"Content-Length: 3\r\nContent-Length: 4\r\n"
            )
        connection = await self.connected()
        await connection.send(request.raw)
        self.take(request, await connection.answer(request.method))
