"""What goes wrong with GPUs while the screen is up: it stays up, says what happened, and recovers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.terminal import Terminal, TerminalFactory
from tests.fake_nvml.build import DRIVER_NOT_LOADED, FakeNvml

LLMTOP = [sys.executable, "-m", "llmtop"]
HOSTILE = "a[/b]c [@click=app.quit]d \x1b[2Je\x9b0m\u202ef 内核"


@pytest.fixture
def machine(fake_nvml_library: Path, tmp_path: Path) -> FakeNvml:
    """Three GPUs whose numbers move."""
    machine = FakeNvml(fake_nvml_library, tmp_path / "control")
    machine.set(gpus=3)
    machine.set_gpu(None, wave=0.05)
    return machine


@pytest.fixture
def watched(machine: FakeNvml, terminal: TerminalFactory) -> Iterator[Terminal]:
    """The live screen; whatever the test does to the GPUs, it leaves with code 0 and a terminal as it was."""
    command = [*LLMTOP, "--attach", str(os.getpid()), "--interval", "0.25"]
    screen = terminal(command, columns=120, lines=40, env={**machine.env, "LLMTOP_NO_EBPF": "1"})
    yield screen
    screen.press("q")
    assert screen.wait_exit() == 0
    assert screen.unrestored() == []


def row_of(text: str, label: str) -> str:
    """The line of a GPU in the pane of several, without what is beside it; empty when there is none."""
    found = re.search(rf"│[ *]{label} +(?=\S)([^│]*)│", text)
    return found[1] if found else ""


def works(*labels: str) -> Callable[[str], bool]:
    """Whether these GPUs show numbers."""
    return lambda text: all(re.match(r"\d+ ", row_of(text, label)) for label in labels)


def test_gpus_are_lost_and_hang_and_come_back(machine: FakeNvml, watched: Terminal) -> None:
    """No key and no other pane stops meanwhile."""
    watched.wait_for(works("0", "1", "2"))
    machine.set_gpu(1, lost=1)
    machine.set_gpu(0, **{"hang.nvmlDeviceGetPowerUsage": 1000})
    watched.wait_for(lambda text: "hung: nvmlDeviceGetPowerUsage" in row_of(text, "0") and works("2")(text))
    watched.wait_for(lambda text: "fallen off the bus" in row_of(text, "1"))
    watched.press("?")
    watched.wait_for("Zoom the focused pane")
    watched.press("escape")
    watched.wait_for(lambda text: "Zoom the focused pane" not in text)
    before = threads_of(watched.screen_text())
    watched.wait_for(lambda text: threads_of(text) != before)
    watched.press("d")
    watched.wait_for("nvmlDeviceGetPowerUsage has not returned")
    machine.set_gpu(0, **{"hang.nvmlDeviceGetPowerUsage": None})
    machine.set_gpu(1, lost=None)
    watched.press("d")
    watched.wait_for(works("0", "1", "2"))
    watched.press("e")
    watched.wait_for(lambda text: "GPU back" in text and re.search(r"GPU 1 +GPU lost .*dmesg", text))


def threads_of(text: str) -> list[str]:
    """What stands in the pane of the threads."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if "4 Threads" in line), len(lines))
    return lines[start : start + 6]


def test_sixteen_gpus_with_hostile_names_go_and_the_driver_too(machine: FakeNvml, watched: Terminal) -> None:
    machine.set(gpus=16, **{"process_name.7": HOSTILE})
    machine.set_gpu(None, compute="7:1000000")
    watched.wait_for(works(*map(str, range(16))))
    watched.press("3", "z")
    watched.wait_for(lambda text: "a[/b]c [@click=app.quit]d ␛[2Je" in text and "Processes on the GPUs" in text)
    machine.set(gpus=2)
    machine.set_gpu(0, mig=1, mig_instances="1 2")
    watched.wait_for(lambda text: "does not list this GPU any more" in row_of(text, "15") and works("1")(text))
    watched.wait_for(lambda text: works("0/1", "0/2")(text) and "MIG 1g" in row_of(text, "0/2"))
    machine.set(fail_everything=DRIVER_NOT_LOADED)
    watched.wait_for(lambda text: "kernel driver is not loaded" in row_of(text, "1"))
