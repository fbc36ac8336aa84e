"""Fixtures for the whole suite."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from contextlib import ExitStack
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.e2e.terminal import Terminal, TerminalFactory
from tests.fake_nvml.build import FakeNvml, build, compiler
from tests.workloads.programs import build_cuda, build_workload

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long an example takes tells of the machine, not of the code. The suite draws the same examples each time, so that
# a change is judged by what it changed; `make fuzz` draws others, and many more.
settings.register_profile("suite", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("fuzz", deadline=None, max_examples=2000)
settings.load_profile("suite")


pytest_plugins = ["tests.time_limits"]

ROOT = Path(__file__).parent

NEED_A_KERNEL = {"kernel_probes", "real_perf"}
"""Fixtures of the tests that look at what runs here with probes or perf events, which few containers may."""


GROWN_BYTES = 64 << 20
"""How much a worker may grow before it collects its garbage."""
after_collection = 0


def pytest_sessionstart(session: pytest.Session) -> None:
    """Write the bytecode of the test files before workers start: each of them would rewrite all files, 10 s of CPU.

    No garbage is looked for among the modules and tests that are collected: there is none, and it takes seconds.
    """
    gc.disable()
    if sys.dont_write_bytecode or not session.config.getoption("numprocesses", None):
        return
    new = [path for path in ROOT.rglob("test_*.py") if not any(path.parent.glob(f"__pycache__/{path.stem}.*pytest*"))]
    if len(new) < 50:
        return
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
    halves = [subprocess.Popen([*command, *map(str, new[i::2])], stdout=subprocess.DEVNULL) for i in range(2)]
    for half in halves:
        half.wait()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if NEED_A_KERNEL & fixtures:
            item.add_marker("kernel")
        if "arrow" in fixtures:
            item.add_marker("oracle")


def pytest_collection_finish() -> None:
    """Collect garbage as rarely as the screen does (`llmtop.tui.app`), without the modules and the collected tests."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Give memory back to the system: screens are cycles, and traces are freed in pieces."""
    global after_collection
    if resident_bytes() > after_collection + GROWN_BYTES:
        clear_analysis()
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        after_collection = resident_bytes()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True, scope="module")
def _no_captures_are_kept() -> Iterator[None]:
    """Let go of the captures that analysis keeps: workers would grow with every file of tests."""
    yield
    clear_analysis()


def clear_analysis() -> None:
    """Empty the caches of llmtop.analysis."""
    for name, module in list(sys.modules.items()):
        if name.startswith("llmtop.analysis."):
            for one in vars(module).values():
                if isinstance(one, _lru_cache_wrapper):
                    one.cache_clear()


@pytest.fixture(autouse=True)
def _no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no probes into the kernel of the machine, except in the tests that are about them."""
    monkeypatch.setenv("LLMTOP_NO_EBPF", "1")


@pytest.fixture(autouse=True)
def _no_memory(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Remember nothing from one test to another, and nothing of whoever runs them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state" / os.urandom(8).hex()))


@pytest.fixture(scope="session")
def fake_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled stand-in for libnvidia-ml.so.1."""
    if compiler() is None:
        pytest.skip("needs a C compiler (gcc) to build the stand-in NVML library")
    return build(tmp_path_factory.mktemp("fake_nvml"))


@pytest.fixture
def fake_nvml(fake_nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """A stand-in machine of one H100: in this process through pynvml, in a child process through `fake_nvml.env`."""
    import pynvml

    machine = FakeNvml(fake_nvml_library, tmp_path / "nvml.control")
    for name, value in machine.env.items():
        monkeypatch.setenv(name, value)
    # The dynamic loader reads LD_LIBRARY_PATH only at start: in this process pynvml is handed the library instead.
    library = ctypes.CDLL(str(fake_nvml_library))
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    yield machine
    assert library.fake_nvml_live_samples() == 0, "a GPM sample was not freed"


@pytest.fixture(scope="session")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with all modes of tests/workloads, compiled."""
    if compiler() is None:
        pytest.skip("needs a C compiler (gcc) for programs whose use of the kernel is known")
    return build_workload(tmp_path_factory.mktemp("workload"))


@pytest.fixture(scope="session")
def cuda_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that uses a stand-in libcuda, compiled."""
    if compiler() is None:
        pytest.skip("needs a C compiler (gcc) for a stand-in libcuda")
    return build_cuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def terminal() -> Iterator[TerminalFactory]:
    """Start programs in pseudo-terminals: `terminal(argv, columns=, lines=, env=...)`; all end with the test."""
    with ExitStack() as stack:

        def start(argv: list[str], **options: Any) -> Terminal:
            program = Terminal(argv, **options)
            stack.callback(program.close)
            return program

        yield start
