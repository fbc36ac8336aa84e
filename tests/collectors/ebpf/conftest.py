"""Fixtures of the eBPF tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectors.ebpf.probes import why_no_probes
from tests.workloads.programs import build_cuda, build_workload, compiler


@pytest.fixture(autouse=True)
def _probes_allowed(_no_probes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about probes."""
    monkeypatch.delenv("LLMTOP_NO_EBPF")


@pytest.fixture(scope="session")
def kernel_probes() -> None:
    """Skip where no probe can be loaded."""
    monkeypatch = pytest.MonkeyPatch()
    with monkeypatch.context() as patch:
        patch.delenv("LLMTOP_NO_EBPF", raising=False)
        why = why_no_probes()
    if why:
        pytest.skip(f"needs probes in the kernel: {why}")


@pytest.fixture(scope="session")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with all modes, compiled."""
    if compiler() is None:
        pytest.skip("needs a C compiler (gcc) for programs whose use of the kernel is known")
    return build_workload(tmp_path_factory.mktemp("workload"))


@pytest.fixture(scope="session")
def cuda_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that uses a stand-in libcuda, compiled."""
    if compiler() is None:
        pytest.skip("needs a C compiler (gcc) for a stand-in libcuda")
    return build_cuda(tmp_path_factory.mktemp("cuda"))
