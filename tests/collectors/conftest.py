"""Fixtures of the collectors' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.collectors.nvml_looks import Clock, nvml_collector

pytest.register_assert_rewrite("tests.collectors.tracing.truths")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.collectors.nvml.collector import NvmlCollector
    from tests.fake_nvml.build import FakeNvml


@pytest.fixture
def probes_allowed(_no_probes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test load probes into the kernel of the machine."""
    monkeypatch.delenv("LLMTOP_NO_EBPF")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def machine(fake_nvml: FakeNvml) -> FakeNvml:
    """A machine whose driver takes GPM windows of any length: the tests' clock is not its clock."""
    fake_nvml.set_gpu(None, gpm_least_window_ms=0)
    return fake_nvml


@pytest.fixture
def collector(machine: FakeNvml, clock: Clock) -> Iterator[NvmlCollector]:
    with nvml_collector(clock) as one:
        yield one
