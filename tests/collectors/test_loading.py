"""Signs that a process is still about to become a server."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from llmtop import procfs
from llmtop.collectors import loading
from tests.collectors.test_prometheus import target

GIB = 1 << 30
SELF = replace(target("process"), root_pid=os.getpid())


@pytest.fixture
def seconds() -> list[float]:
    return [1000.0]


def test_one_that_is_old_is_under_way_while_it_reads_as_much_as_weights(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float]
) -> None:
    read = [GIB]
    monkeypatch.setattr(loading, "age", lambda _: 600.0)
    monkeypatch.setattr(loading, "bytes_read", lambda _: read[0])
    start = loading.Start(SELF, lambda: seconds[0])
    assert not start.is_under_way(), "what it read before may be of any time"
    seconds[0], read[0] = 1010.0, 3 * GIB
    assert start.is_under_way()
    seconds[0] = 1015.0
    assert start.is_under_way(), "ten seconds are looked at as a whole"
    seconds[0] = 1020.0
    assert not start.is_under_way()


@pytest.mark.parametrize(("name", "is_under_way"), [("ptxas", True), ("sleep", False)])
def test_one_that_compiles_is_under_way(name: str, is_under_way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "age", lambda _: 600.0)
    monkeypatch.setattr(procfs, "name", lambda _: name)
    assert loading.Start(SELF).is_under_way() == is_under_way


@pytest.mark.parametrize(("age_s", "is_under_way"), [(119.0, True), (121.0, False), (None, False)])
def test_one_that_is_young_is_under_way_and_one_that_is_gone_is_not(
    age_s: float | None, is_under_way: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "age", lambda _: age_s)
    assert loading.Start(SELF).is_under_way() == is_under_way
