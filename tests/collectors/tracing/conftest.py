"""Fixtures of the eBPF tests."""

from __future__ import annotations

import pytest

from tests.collectors.tracing.probes import why_no_probes


@pytest.fixture(autouse=True)
def _about_probes(probes_allowed: None) -> None:
    """These tests are."""


@pytest.fixture(scope="session")
def kernel_probes() -> None:
    """Skip where no probe can be loaded."""
    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patch:
        patch.delenv("LLMTOP_NO_EBPF", raising=False)
        why = why_no_probes()
    if why:
        pytest.skip(f"needs probes in the kernel: {why}")
