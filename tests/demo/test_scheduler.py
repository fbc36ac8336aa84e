"""What must hold whatever is asked: blocks never leak or double up, every request ends, the batch keeps its limits."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmtop.demo.model import EOS, Piece
from llmtop.demo.scheduler import BlockPool, Request, Scheduler

BLOCK = 4
Asked = tuple[int, int, int]
"""Prompt length, max_tokens, and which of a few prompt beginnings it has."""

asks = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12), st.integers(0, 2)), min_size=1, max_size=12)


def request(name: str, length: int, max_tokens: int, kind: int = 0) -> Request:
    return Request(name, [(kind * 31 + i) % 256 for i in range(length)], max_tokens)


def next_token(tokens: list[int]) -> int:
    """A model that depends on the whole sequence, so that wrongly reused content shows; seldom the end mark."""
    value = sum((i + 1) * token for i, token in enumerate(tokens)) % 259
    return EOS if value == 258 else value % 256


class ReferenceCache:
    """Remembers which tokens each slot holds, as the KV cache does, and checks every context against them."""

    def __init__(self, blocks: int) -> None:
        self.slots: dict[int, tuple[int, ...]] = {}
        self.blocks = blocks

    def run(self, scheduled: list[tuple[Request, Piece]]) -> list[int]:
        sampled = []
        for owner, piece in scheduled:
            assert piece.start == owner.computed
            for i, token in enumerate(piece.tokens):
                position = piece.start + i
                # A key depends on all tokens before it, so the whole prefix is what the slot stands for.
                self.slots[self._slot(piece, position)] = (*owner.tokens[:position], token)
            for position in range(piece.end):
                assert self.slots[self._slot(piece, position)] == tuple(owner.tokens[: position + 1])
            sampled.append(next_token(owner.tokens[: piece.end]))
        return sampled

    def _slot(self, piece: Piece, position: int) -> int:
        block = piece.blocks[position // BLOCK]
        assert 0 <= block < self.blocks
        return block * BLOCK + position % BLOCK


def check(scheduler: Scheduler) -> None:
    """Every block is free or held exactly as often as requests name it."""
    held = Counter(block for owner in scheduler.running for block in owner.blocks)
    assert len(held) + scheduler.pool.free == scheduler.pool.size
    assert scheduler.pool._holders == [held[block] for block in range(scheduler.pool.size)]
    assert all(not owner.blocks and not owner.computed for owner in scheduler.waiting)
    assert len(scheduler.running) <= scheduler.max_num_seqs


def run_to_the_end(scheduler: Scheduler, cache: ReferenceCache | None = None) -> dict[str, str]:
    """Step until nothing is left; why each request ended."""
    cache = cache or ReferenceCache(scheduler.pool.size)
    ended: dict[str, str] = {}
    for _ in range(20_000):
        if not scheduler.has_work:
            return ended
        scheduled = scheduler.schedule(1.0)
        assert scheduled, "a step that computes nothing never ends"
        assert sum(len(piece.tokens) for _, piece in scheduled) <= scheduler.max_step_tokens
        assert len({owner.id for owner, _ in scheduled}) == len(scheduled)
        check(scheduler)
        for owner, reason in scheduler.update(scheduled, cache.run(scheduled)):
            if reason:
                ended[owner.id] = reason
        check(scheduler)
    raise AssertionError(f"{len(scheduler.running) + len(scheduler.waiting)} requests never end")


@given(asks, st.integers(11, 24), st.integers(1, 5), st.integers(1, 40), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_request_ends_and_no_block_is_lost(
    asked: list[Asked], blocks: int, max_num_seqs: int, max_step_tokens: int, prefix_caching: bool
) -> None:
    scheduler = Scheduler(blocks, BLOCK, max_num_seqs, max_step_tokens, prefix_caching=prefix_caching)
    requests = [request(str(i), *ask) for i, ask in enumerate(asked)]
    for one in requests:
        scheduler.add(one)
    ended = run_to_the_end(scheduler)
    assert set(ended) == {one.id for one in requests}
    assert scheduler.kv_usage == 0
    for one in requests:
        expected = list(one.prompt)
        while len(expected) < len(one.tokens):
            expected.append(next_token(expected))
        assert one.tokens == expected
        assert ended[one.id] == ("stop" if one.tokens[-1] == EOS else "length")
        assert one.generated == one.max_tokens or one.tokens[-1] == EOS


@given(asks, st.lists(st.integers(0, 11), max_size=12), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_aborting_at_any_time_gives_blocks_back(asked: list[Asked], aborted: list[int], max_step_tokens: int) -> None:
    scheduler = Scheduler(12, BLOCK, 3, max_step_tokens)
    requests = [request(str(i), *ask) for i, ask in enumerate(asked)]
    for one in requests:
        scheduler.add(one)
    cache = ReferenceCache(12)
    for number in aborted:
        if scheduler.has_work:
            scheduled = scheduler.schedule(0.0)
            scheduler.update(scheduled, cache.run(scheduled))
        scheduler.abort(str(number))
        check(scheduler)
        assert scheduler.abort(str(number)) is None
    for one in requests:
        scheduler.abort(one.id)
    assert scheduler.pool.free == 12


def test_too_little_memory_preempts_the_newest_which_is_computed_again() -> None:
    scheduler = Scheduler(6, BLOCK, 4, 64, prefix_caching=False)
    first, second = request("first", 8, 12), request("second", 8, 12, kind=1)
    scheduler.add(first)
    scheduler.add(second)
    ended = run_to_the_end(scheduler)
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert scheduler.counts.preemptions == 1
    assert list(ended) == ["first", "second"]


def test_a_prompt_longer_than_a_step_is_computed_in_chunks_beside_decodes() -> None:
    scheduler = Scheduler(32, BLOCK, 4, 8)
    scheduler.add(request("short", 3, 9))
    scheduler.update(scheduled := scheduler.schedule(0.0), [1] * len(scheduled))
    scheduler.add(request("long", 20, 1, kind=1))
    chunks = []
    while any(one.id == "long" for one in [*scheduler.waiting, *scheduler.running]):
        scheduled = scheduler.schedule(0.0)
        chunks.append([len(piece.tokens) for _, piece in scheduled])
        scheduler.update(scheduled, [1] * len(scheduled))
    assert chunks == [[1, 7], [1, 7], [1, 6]]


def test_an_equal_beginning_is_computed_once() -> None:
    scheduler, cache = Scheduler(32, BLOCK, 4, 64), ReferenceCache(32)
    for name in ("first", "again"):
        scheduler.add(request(name, 10, 2))
        run_to_the_end(scheduler, cache)
    assert scheduler.counts.prefix_queries == 20
    assert scheduler.counts.prefix_hits == 8


def test_a_prompt_known_whole_still_computes_its_last_token() -> None:
    scheduler = Scheduler(32, BLOCK, 4, 64)
    for name in ("first", "again"):
        scheduler.add(request(name, 8, 1))
        scheduled = scheduler.schedule(0.0)
        scheduler.update(scheduled, [1])
    assert [len(piece.tokens) for _, piece in scheduled] == [4]


def test_the_queue_time_is_that_of_the_first_scheduling() -> None:
    scheduler = Scheduler(32, BLOCK, 1, 64)
    one, two = request("one", 4, 1), request("two", 4, 1)
    scheduler.add(one)
    scheduler.add(two)
    scheduler.update(scheduler.schedule(5.0), [1])
    scheduler.schedule(7.0)
    assert (one.scheduled_s, two.scheduled_s) == (5.0, 7.0)


@pytest.mark.parametrize(("length", "max_tokens"), [(0, 1), (1, 0), (30, 11)])
def test_what_could_never_end_is_refused(length: int, max_tokens: int) -> None:
    scheduler = Scheduler(10, BLOCK, 1, 8)
    with pytest.raises(ValueError, match=r"request needs|do not fit"):
        scheduler.add(request("x", length, max_tokens))
    assert not scheduler.has_work


def test_the_pool_gives_away_the_longest_free_block_and_forgets_it() -> None:
    pool = BlockPool(3)
    first = pool.take(2)
    assert first == [0, 1]
    pool.remember(0, b"a")
    pool.remember(1, b"a")  # the same content twice: the first stays
    pool.give_back(first)
    assert pool.take_known(b"a") == 0
    assert pool.take(3) is None
    assert pool.take(2) == [2, 1]
    pool.give_back([0])
    assert pool.take(1) == [0]
    assert pool.take_known(b"a") is None
