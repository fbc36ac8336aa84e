"""Continuous batching over a fixed number of KV blocks.

Every step computes some tokens of the running requests: the rest of a prompt, in chunks, or one token of a decode.
When blocks run out, the request that came last gives up all of its own and is computed again later (preemption by
recomputation). Full blocks are kept by content, so that equal beginnings of prompts are computed once.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from llmtop.demo.model import EOS, Piece


@dataclass(slots=True, eq=False)
class Request:
    """One completion on its way.

    Attributes:
        tokens: The prompt and what has been generated so far.
        computed: How many of `tokens` have their keys and values in the cache.
        block_keys: Content keys of the full blocks that are in the cache under them, in order.
        scheduled_s: When it first left the queue; monotonic seconds.
    """

    id: str
    prompt: Sequence[int]
    max_tokens: int
    temperature: float = 1.0
    seed: int = 0
    queued_s: float = 0.0
    scheduled_s: float | None = None
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    block_keys: list[bytes] = field(default_factory=list)
    computed: int = 0
    preemptions: int = 0

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - len(self.prompt)


@dataclass(slots=True)
class Counts:
    """What has happened since the start."""

    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0


class BlockPool:
    """The KV blocks: who holds them, and which hold reusable content.

    A block is either held (by one or more requests) or free; a free one keeps its content until it is given away,
    the longest free first.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._holders = [0] * size
        self._free: dict[int, None] = dict.fromkeys(range(size))  # a dict for its order and O(1) removal
        self._block_by_key: dict[bytes, int] = {}
        self._key_by_block: dict[int, bytes] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """Hold `count` blocks with nothing of use in them; None when there are not so many."""
        if count > len(self._free):
            return None
        blocks = [self._pop() for _ in range(count)]
        for block in blocks:
            self._holders[block] = 1
        return blocks

    def take_known(self, key: bytes) -> int | None:
        """Hold the block with this content, beside any others that do; None when there is none."""
        block = self._block_by_key.get(key)
        if block is not None:
            self._free.pop(block, None)
            self._holders[block] += 1
        return block

    def give_back(self, blocks: Sequence[int]) -> None:
        """Let go of blocks; the last ones first, for the beginning of a prompt is the likelier to be asked again."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free[block] = None

    def remember(self, block: int, key: bytes) -> None:
        """Offer a full block's content for reuse; a block with the same content that is known already stays."""
        if key not in self._block_by_key:
            self._block_by_key[key] = block
            self._key_by_block[block] = key

    def _pop(self) -> int:
        block = next(iter(self._free))
        del self._free[block]
        key = self._key_by_block.pop(block, None)
        if key is not None:
            del self._block_by_key[key]
        return block


class Scheduler:
    """Decides what each step computes. Its requests end by `update` or `abort`, and then hold nothing.

    Args:
        blocks: KV blocks; together they must hold the longest admissible request.
        max_num_seqs: Requests computed at the same time at most.
        max_step_tokens: Tokens computed in one step at most.
    """

    def __init__(
        self,
        blocks: int,
        block_size: int,
        max_num_seqs: int,
        max_step_tokens: int,
        *,
        prefix_caching: bool = True,
    ) -> None:
        self.pool = BlockPool(blocks)
        self.block_size = block_size
        self.max_num_seqs = max_num_seqs
        self.max_step_tokens = max_step_tokens
        self.prefix_caching = prefix_caching
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counts = Counts()

    @property
    def kv_usage(self) -> float:
        """Share of the blocks that requests hold, 0 to 1."""
        return 1 - self.pool.free / self.pool.size

    @property
    def has_work(self) -> bool:
        """Whether a step would compute something."""
        return bool(self.running or self.waiting)

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ValueError: It could not be finished even alone, or it asks for nothing.
        """
        if not request.prompt or request.max_tokens < 1:
            raise ValueError("a request needs a prompt and at least one token to generate")
        if len(request.prompt) + request.max_tokens > self.pool.size * self.block_size:
            raise ValueError("prompt and max_tokens do not fit into the KV cache")
        self.waiting.append(request)

    def abort(self, request_id: str) -> Request | None:
        """Drop a request wherever it is; None when it is not here (any more)."""
        for queue in (self.running, self.waiting):
            for request in queue:
                if request.id == request_id:
                    queue.remove(request)
                    self._release(request)
                    return request
        return None

    def schedule(self, now_s: float) -> list[tuple[Request, Piece]]:
        """Choose what the next step computes; running requests first, then the queue in its order."""
        budget = self.max_step_tokens
        pieces: list[tuple[Request, Piece]] = []
        preemptions = self.counts.preemptions
        for request in list(self.running):
            if request in self.running and budget and self._make_room(request, budget):
                pieces.append((request, self._piece(request, budget)))
                budget -= len(pieces[-1][1].tokens)
        if self.counts.preemptions == preemptions:
            self._admit(pieces, budget, now_s)
        return pieces

    def update(self, pieces: Sequence[tuple[Request, Piece]], tokens: Sequence[int]) -> list[tuple[Request, str]]:
        """Take in what a step computed.

        Args:
            pieces: As `schedule` gave them.
            tokens: The token sampled after each piece; passed over where the prompt is not yet done.

        Returns:
            The requests that got a token, each with why it ended: "stop", "length", or "" when it goes on.
        """
        advanced = []
        for (request, piece), token in zip(pieces, tokens, strict=True):
            request.computed = piece.end
            self._remember_full_blocks(request)
            if request.computed == len(request.tokens):
                request.tokens.append(token)
                reason = _finish_reason(request, token)
                advanced.append((request, reason))
                if reason:
                    self.running.remove(request)
                    self._release(request)
        return advanced

    def _piece(self, request: Request, budget: int) -> Piece:
        end = min(len(request.tokens), request.computed + budget)
        return Piece(request.tokens[request.computed : end], request.computed, tuple(request.blocks))

    def _make_room(self, request: Request, budget: int) -> bool:
        """Get a running request its blocks, taking them from those that came last; False when it lost its own."""
        while not self._reserve(request, budget):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        return True

    def _reserve(self, request: Request, budget: int) -> bool:
        end = min(len(request.tokens), request.computed + budget)
        taken = self.pool.take(-(-end // self.block_size) - len(request.blocks))
        request.blocks += taken or []
        return taken is not None

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._release(request)
        request.preemptions += 1
        self.counts.preemptions += 1
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        self.pool.give_back(request.blocks)
        request.blocks, request.block_keys, request.computed = [], [], 0

    def _admit(self, pieces: list[tuple[Request, Piece]], budget: int, now_s: float) -> None:
        while self.waiting and budget and len(self.running) < self.max_num_seqs:
            request = self.waiting[0]
            self._reuse_prefix(request)
            if not self._reserve(request, budget):
                self._release(request)
                return
            self._count_prefix(request)
            self.running.append(self.waiting.popleft())
            request.scheduled_s = now_s if request.scheduled_s is None else request.scheduled_s
            pieces.append((request, self._piece(request, budget)))
            budget -= len(pieces[-1][1].tokens)

    def _reuse_prefix(self, request: Request) -> None:
        """Hold the blocks that are known already; the last token is always computed, for its logits are needed."""
        if not self.prefix_caching:
            return
        for i in range((len(request.tokens) - 1) // self.block_size):
            key = self._key(request, i)
            block = self.pool.take_known(key)
            if block is None:
                return
            request.blocks.append(block)
            request.block_keys.append(key)
            request.computed += self.block_size

    def _count_prefix(self, request: Request) -> None:
        if self.prefix_caching:
            self.counts.prefix_queries += len(request.tokens)
            self.counts.prefix_hits += request.computed

    def _remember_full_blocks(self, request: Request) -> None:
        if not self.prefix_caching:
            return
        for i in range(len(request.block_keys), request.computed // self.block_size):
            request.block_keys.append(self._key(request, i))
            self.pool.remember(request.blocks[i], request.block_keys[i])

    def _key(self, request: Request, i: int) -> bytes:
        """Names block i by its tokens and all before them."""
        before = request.block_keys[i - 1] if i else b""
        tokens = request.tokens[i * self.block_size : (i + 1) * self.block_size]
        return hashlib.blake2b(before + repr(tokens).encode(), digest_size=16).digest()


def _finish_reason(request: Request, token: int) -> str:
    if token == EOS:
        return "stop"
    return "length" if request.generated >= request.max_tokens else ""
