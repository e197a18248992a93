"""What is done to replicas and to the router's set of them, drawn from the seed beforehand.

At most two of the four replicas are disturbed at a time, so that there is always another one; a
replica counts as disturbed until the router uses it again.
"""

import asyncio
import json
import random
import signal
import time

from chaos.connection import Ended, Garbled, ask
from chaos.traffic import MODEL, TUNNEL_PATH, TUNNEL_TEXT

from support.processes import POINTSMAN, Listening

REPLICAS = 4
DISTURBED_AT_ONCE = 2

# A replica that does not come back into use within this time is a finding.
BACK_S = 90

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

# The router leaves such a replica alone for half a minute, unless a probe fails before.
SHUTTING_DOWN = {
    "status": 500,
    "body": '{"error":{"message":"cannot schedule new futures after shutdown"}}',
}

# Faults of the simulated replica that the router must hide, or show as what they are.
FAULTS = [
    {"status": 503, "body": '{"error":{"message":"busy"}}', "headers": {"Retry-After": "1"}},
    {"status": 502, "body": "bad gateway", "content_type": "text/plain"},
    {"status": 429, "body": '{"error":{"message":"full"}}'},
    SHUTTING_DOWN,
    {"before_head": True, "then": "close"},
    {"before_head": True, "then": "reset"},
    {"after_head": True, "then": "close"},
    {"after_head": True, "then": "reset"},
    {"after_events": 0, "then": "close"},
    {"after_events": 3, "then": "close"},
    {"after_events": 3, "then": "reset"},
    {"after_events": 5, "in_event": True, "then": "close"},
    {"after_events": 5, "in_event": True, "then": "reset"},
    {"raw": "this is no HTTP at all\r\n\r\n"},
    {"raw": "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"},
    {"raw": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"},
    {"raw": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
]

ACTIONS = {
    "kill": 5,
    "terminate": 2,
    "stop": 4,
    "stop and kill": 2,
    "pause": 2,
    "sleep": 2,
    "refuse": 2,
    "reset all": 2,
    "drain": 3,
    "drain and kill": 1,
    "remove": 3,
    "remove and kill": 1,
    "fault": 8,
    "hang and kill": 2,
    "slow": 3,
}


def plan(seed, seconds):
    """[{at_s, replica, action, and what it is given}], in order."""
    draw = random.Random(f"{seed}/disturbances")
    steps, at = [], 1.0
    while at < seconds - 2:
        action = draw.choices(list(ACTIONS), ACTIONS.values())[0]
        step = {
            "at_s": round(at, 2),
            "replica": draw.randrange(REPLICAS),
            "action": action,
            "for_s": round(draw.uniform(0.3, 3.0), 2),
            "down_s": round(draw.uniform(0.1, 2.0), 2),
        }
        if action == "fault":
            # Few at a time: answers that say "not here" are within the budget of retries.
            late = at > seconds - 32
            kinds = [fault for fault in FAULTS if not (late and fault is SHUTTING_DOWN)]
            fault = {**draw.choice(kinds), "count": draw.randint(1, 3)}
            step["fault"] = {**fault, "path": draw.choice([CHAT, COMPLETIONS])}
        elif action == "slow":
            step["fault"] = {"delay_s": round(draw.uniform(0.1, 1.5), 2), "count": 30, "path": "/v1/"}
        steps.append(step)
        at += draw.uniform(0.2, 1.6)
    return steps


class SimulatedReplica:
    """A `pointsman replica` that can be killed and started again on its port."""

    COMMAND = [
        "replica", "--model", MODEL, "--speed", "10", "--enable-request-id-headers",
        "--max-num-seqs", "256",
    ]

    def __init__(self, number):
        self.number = number
        self.process = None
        self.port = 0
        self.starts = 0
        self.start()

    def start(self):
        command = [POINTSMAN, *self.COMMAND, "--listen", f"127.0.0.1:{self.port}"]
        self.process = Listening(command)
        self.url = self.process.url
        self.port = int(self.url.rsplit(":", 1)[1])
        self.address = ("127.0.0.1", self.port)
        self.starts += 1

    async def started(self):
        await asyncio.to_thread(self.start)
        await self.offer_tunnel()

    async def ask(self, method, target, body=None):
        return await ask(self.address, method, target, json.dumps(body).encode() if body else b"")

    async def offer_tunnel(self):
        raw = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        await self.ask(
            "POST", "/fault",
            {
                "path": TUNNEL_PATH, "count": 0, "raw": (raw + TUNNEL_TEXT).decode(),
                "piece_bytes": 150, "piece_s": 0.05,
            },
        )

    async def killed(self):
        self.process.signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)


class Disturbances:
    def __init__(self, replicas, admin_url, steps, log):
        host, port = admin_url.removeprefix("http://").rsplit(":", 1)
        self.admin = (host, int(port))
        self.replicas = replicas
        self.steps = steps
        self.log = log
        self.done = []
        self.problems = []

    async def run(self, begin, seconds):
        """Each replica's steps in their order, each at its time or when it may."""
        places = asyncio.Semaphore(DISTURBED_AT_ONCE)

        async def of(replica):
            for step in self.steps:
                if step["replica"] != replica.number:
                    continue
                await asyncio.sleep(max(0.0, begin + step["at_s"] - time.monotonic()))
                async with places:
                    if self.problems or time.monotonic() > begin + seconds:
                        return
                    await self._disturb(replica, step, begin)

        await asyncio.gather(*map(of, self.replicas))

    async def _disturb(self, replica, step, begin):
        entry = {"step": step, "began_s": round(time.monotonic() - begin, 3)}
        self.done.append(entry)
        what = step["fault"] if "fault" in step else ""
        self.log(f"replica {replica.number}: {step['action']} {what}")
        try:
            await getattr(self, "_" + step["action"].replace(" ", "_"))(replica, step)
            entry["over_s"] = round(time.monotonic() - begin, 3)
            await self._wait_used(replica)
            entry["used_again_s"] = round(time.monotonic() - begin, 3)
        except (OSError, RuntimeError, AssertionError, Ended, Garbled) as error:
            self.problems.append(f"{step}: {error!r}")
            self.log(f"replica {replica.number}: {error!r}")

    # --- the admin port ---------------------------------------------------------------------------

    async def _admin(self, method, target, body=None):
        data = json.dumps(body).encode() if body else b""
        status, answer = await ask(self.admin, method, target, data)
        assert status < 300, f"{method} {target}: {status} {answer!r}"
        return json.loads(answer) if answer else None

    async def replicas_seen(self):
        return (await self._admin("GET", "/v1/replicas"))["replicas"]

    def _name(self, replica):
        return f"/v1/replicas/127.0.0.1:{replica.port}"

    async def _wait_used(self, replica):
        end = time.monotonic() + BACK_S
        while True:
            seen = [r for r in await self.replicas_seen() if r["url"] == replica.url]
            if any(r["usable"] for r in seen):
                return
            assert time.monotonic() < end, f"not used again within {BACK_S} s: {seen}"
            await asyncio.sleep(0.1)

    # --- the actions ------------------------------------------------------------------------------

    async def _kill(self, replica, step):
        await replica.killed()
        await asyncio.sleep(step["down_s"])
        await replica.started()

    async def _terminate(self, replica, step):
        replica.process.signal(signal.SIGTERM)
        await asyncio.to_thread(replica.process.stop)
        await asyncio.sleep(step["down_s"])
        await replica.started()

    async def _stop(self, replica, step):
        replica.process.signal(signal.SIGSTOP)
        await asyncio.sleep(step["for_s"])
        replica.process.signal(signal.SIGCONT)

    async def _stop_and_kill(self, replica, step):
        replica.process.signal(signal.SIGSTOP)
        await asyncio.sleep(step["for_s"])
        await self._kill(replica, step)

    async def _pause(self, replica, step):
        await replica.ask("POST", "/state", {"paused": True})
        await asyncio.sleep(step["for_s"])
        await replica.ask("POST", "/state", {"paused": False})

    async def _sleep(self, replica, step):
        await replica.ask("POST", "/state", {"asleep": True})
        await asyncio.sleep(step["for_s"])
        await replica.ask("POST", "/state", {"asleep": False})

    async def _refuse(self, replica, step):
        await replica.ask("POST", "/state", {"refuse_s": step["down_s"]})
        await asyncio.sleep(step["down_s"])

    async def _reset_all(self, replica, step):
        await replica.ask("POST", "/state", {"reset_all": True, "refuse_s": step["down_s"]})
        await asyncio.sleep(step["down_s"])

    async def _drain(self, replica, step):
        await self._admin("POST", self._name(replica) + "/drain")
        await asyncio.sleep(step["for_s"])
        await self._admin("POST", self._name(replica) + "/undrain")

    async def _drain_and_kill(self, replica, step):
        await self._admin("POST", self._name(replica) + "/drain")
        await asyncio.sleep(step["for_s"] / 10)
        await self._kill(replica, step)
        await self._admin("POST", self._name(replica) + "/undrain")

    async def _remove(self, replica, step):
        await self._admin("DELETE", self._name(replica))
        await asyncio.sleep(step["for_s"])
        await self._admin("POST", "/v1/replicas", {"url": replica.url})

    async def _remove_and_kill(self, replica, step):
        await self._admin("DELETE", self._name(replica))
        await asyncio.sleep(step["for_s"] / 10)
        await self._kill(replica, step)
        await self._admin("POST", "/v1/replicas", {"url": replica.url})

    async def _fault(self, replica, step):
        await replica.ask("POST", "/fault", step["fault"])
        await asyncio.sleep(step["for_s"])
        await self._forget_faults(replica)

    async def _forget_faults(self, replica):
        await replica.ask("DELETE", "/fault")
        await replica.offer_tunnel()

    async def _slow(self, replica, step):
        await self._fault(replica, step)

    async def _hang_and_kill(self, replica, step):
        hang = {"after_events": 2, "then": "hang", "count": 5, "path": "/v1/c"}
        await replica.ask("POST", "/fault", hang)
        await asyncio.sleep(step["for_s"])
        await self._kill(replica, step)
