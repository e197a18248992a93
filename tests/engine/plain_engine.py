"""The engine model a second time: slow, obvious, block by block and step by step.

Written from the rules of the model (docs/simulated_replica.md), not from the C++, so that the two
can be held against each other. Times in picoseconds.
"""

import collections

BLOCK = 16


class Request:
    def __init__(self, name, prompt, output, chain):
        self.name, self.prompt, self.output = name, prompt, output
        self.texts = [(run, i) for run, blocks in chain for i in range(blocks)]  # of full blocks
        self.generated = 0
        self.computed = 0  # tokens with KV entries
        self.scheduled = 0  # tokens of the step under way
        self.published = 0  # leading blocks that others can find
        self.blocks = []
        self.cached = None  # tokens found at first admission

    def missing(self):
        return self.prompt + self.generated - self.computed


class PlainEngine:
    def __init__(self, blocks, batched_tokens, seqs, constants):
        self.batched_tokens, self.seqs, self.constants = batched_tokens, seqs, constants
        self.block_count = blocks
        self.slowness = 1.0
        self.running, self.waiting = [], collections.deque()
        self.begun, self.step_end = 0, None
        self.preemptions = self.steps = self.tokens = self.queries = self.hits = self.busy = 0
        self.log = []
        self.empty_cache()

    def empty_cache(self):
        self.free = collections.deque(range(self.block_count))  # the next to be taken is in front
        self.users = [0] * self.block_count
        self.text_of = {}  # block -> text, for what can be found
        self.block_of = {}

    # --- what the world does

    def submit(self, now, request):
        if self.step_end is None:
            self.begun = max(self.begun, now)
        self.waiting.append(request)

    def cancel(self, now, name):
        for request in [*self.running, *self.waiting]:
            if request.name == name:
                self.give_back(request)
                (self.running if request in self.running else self.waiting).remove(request)

    def crash(self, now):
        self.running, self.waiting = [], collections.deque()
        self.empty_cache()
        self.begun, self.step_end = now, None

    def advance(self, until):
        while True:
            if self.step_end is None:
                if not self.running and not self.waiting:
                    return
                self.begin_step()
            if self.step_end > until:
                return
            self.finish_step()

    # --- blocks

    def take(self, count):
        taken = [self.free.popleft() for _ in range(count)]
        for block in taken:
            if block in self.text_of:
                del self.block_of[self.text_of.pop(block)]
            self.users[block] = 1
        return taken

    def share(self, text):
        block = self.block_of[text]
        if self.users[block] == 0:
            self.free.remove(block)
        self.users[block] += 1
        return block

    def give_back(self, request):
        for block in reversed(request.blocks):
            self.users[block] -= 1
            if self.users[block] == 0:
                self.free.append(block)
        request.blocks, request.published, request.computed = [], 0, 0

    def publish(self, request, tokens):
        full = min(tokens // BLOCK, len(request.texts))
        for i in range(request.published, full):
            own, text = request.blocks[i], request.texts[i]
            if text in self.block_of:  # computed twice: the first one is kept
                request.blocks[i] = self.share(text)
                self.users[own] = 0
                self.free.appendleft(own)
            else:
                self.block_of[text] = own
                self.text_of[own] = text
        request.published = max(request.published, full)

    # --- a step

    def begin_step(self):
        self.left = self.batched_tokens
        self.work = collections.Counter()
        preempted = False
        for request in list(self.running):
            if request not in self.running:
                continue
            count = min(request.missing(), self.left)
            needed = -(-(request.computed + count) // BLOCK) - len(request.blocks)
            while needed > len(self.free) and request in self.running:
                victim = self.running.pop()
                self.give_back(victim)
                self.waiting.appendleft(victim)
                self.preemptions += 1
                preempted = True
            if request in self.running and count > 0:
                request.blocks += self.take(max(needed, 0))
                self.schedule(request, count)
        while not preempted and self.waiting and self.left and len(self.running) < self.seqs:
            if not self.admit(self.waiting[0]):
                break
            self.running.append(self.waiting.popleft())
        self.step_end = self.begun + self.duration()
        self.steps += 1
        self.busy += self.duration()

    def admit(self, request):
        texts = request.texts[: (request.missing() - 1) // BLOCK]  # the last token is computed
        hit = 0
        while hit < len(texts) and texts[hit] in self.block_of:
            hit += 1
        count = min(request.missing() - hit * BLOCK, self.left)
        needed = -(-count // BLOCK)
        reused = [self.block_of[text] for text in texts[:hit]]
        if needed + sum(self.users[block] == 0 for block in reused) > len(self.free):
            return False
        request.blocks = [self.share(text) for text in texts[:hit]]
        request.blocks += self.take(needed)
        request.computed = hit * BLOCK
        request.published = hit
        if request.cached is None:
            request.cached = hit * BLOCK
            self.queries += request.prompt
            self.hits += request.cached
        self.schedule(request, count)
        return True

    def schedule(self, request, count):
        request.scheduled = count
        self.left -= count
        self.work["tokens"] += count
        self.work["seqs"] += 1
        if count == 1 and request.generated > 0:
            self.work["context"] += request.computed
        else:
            self.work["pairs"] += sum(request.computed + 1 + i for i in range(count))
        self.publish(request, request.computed + count)

    def duration(self):
        t0, tw, tc, tkv, tseq, ra = self.constants
        t0, tw, token, tkv, tseq, pair = (
            round(seconds * self.slowness * 1e12) for seconds in (t0, tw, tc, tkv, tseq, tc * ra)
        )
        work = self.work
        return (
            t0
            + max(tw, token * work["tokens"])
            + tkv * work["context"]
            + tseq * work["seqs"]
            + pair * work["pairs"]
        )

    def finish_step(self):
        self.begun, self.step_end = self.step_end, None
        seen_at = -(-self.begun // 1000)  # nanoseconds, rounded up
        for request in list(self.running):
            request.computed += request.scheduled
            request.scheduled = 0
            if request.missing() > 0:
                continue
            request.generated += 1
            self.tokens += 1
            if request.generated == 1:
                self.log.append(f"first {request.name} {seen_at} {request.cached}")
            if request.generated == request.output:
                self.log.append(f"end {request.name} {seen_at}")
                self.give_back(request)
                self.running.remove(request)

    def read(self, now):
        values = [now // 1000, len(self.running), len(self.waiting)]
        values += [self.block_count - len(self.free), self.preemptions, self.steps, self.tokens]
        values += [self.queries, self.hits, self.busy]
        self.log.append("state " + " ".join(map(str, values)))
