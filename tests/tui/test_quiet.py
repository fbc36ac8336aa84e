"""What the tests of the screen wait for after a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from tests.tui import quiet
from tests.tui.quiet import SOON_S, until_quiet


@pytest.mark.parametrize("links", [1, 50])
async def test_what_calls_the_next_is_waited_for_to_the_end(links: int) -> None:
    loop = asyncio.get_running_loop()
    done: list[object] = []

    def link() -> None:
        done.append(len(done))
        if len(done) < links:
            loop.call_soon(link)

    loop.call_soon(link)
    await until_quiet()
    assert len(done) == links


async def test_a_timer_that_is_due_soon_is_waited_for_and_what_it_sets_off() -> None:
    loop = asyncio.get_running_loop()
    done: list[object] = []
    loop.call_later(SOON_S / 2, lambda: loop.call_soon(done.append, "late"))
    await until_quiet()
    assert done == ["late"]


async def test_a_timer_of_later_is_not_waited_for() -> None:
    later = asyncio.get_running_loop().call_later(60, int)
    await asyncio.wait_for(until_quiet(), 30)
    later.cancel()
    await until_quiet()


async def busy() -> None:
    while True:
        await asyncio.sleep(0)


async def animated() -> None:
    while True:
        await asyncio.sleep(SOON_S / 30)


@pytest.mark.parametrize("restless", [busy, animated])
async def test_what_never_rests_is_given_up(
    restless: Callable[[], Coroutine[None, None, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "PATIENCE_S", 0.2)
    task = asyncio.create_task(restless())
    await asyncio.wait_for(until_quiet(), 30)
    assert not task.done()
    task.cancel()
