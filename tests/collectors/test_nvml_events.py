"""XIDs and other faults: from NVML's events, from the kernel log, told once with what to do."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.collectors import kernel_log
from llmtop.collectors.kernel_log import KernelLog, XidLine, pci_address, xid_line
from llmtop.collectors.xid import XIDS, Action, xid
from llmtop.model import MarkKind, Severity, What, XidReport
from tests.collectors.nvml_looks import Clock, nvml_collector, reasons
from tests.fake_nvml.build import NOT_SUPPORTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.collectors.nvml.collector import NvmlCollector
    from llmtop.model import Mark
    from tests.fake_nvml.build import FakeNvml


class Kernel:
    """The writing end of a kernel log that reads one record at a time, as /dev/kmsg does."""

    def __init__(self) -> None:
        self._writer, self._reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._reader.setblocking(False)
        self.log = KernelLog(lambda: os.dup(self._reader.fileno()))

    def say(self, text: str) -> None:
        self._writer.send(f"4,361,56295741,c;{text}\n SUBSYSTEM=pci\n".encode())

    def close(self) -> None:
        self._writer.close()
        self._reader.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    one = Kernel()
    yield one
    one.close()


@pytest.fixture
def watcher(machine: FakeNvml, clock: Clock, kernel: Kernel) -> Iterator[NvmlCollector]:
    machine.set(gpus=2)
    with nvml_collector(clock, kernel_log=kernel.log) as collector:
        collector.poll()
        yield collector


def next_marks(collector: NvmlCollector, clock: Clock, seconds: float = 0.25) -> tuple[Mark, ...]:
    clock.advance(seconds)
    return collector.poll().marks


# What an H100 (driver 580) writes of one misaligned store; the PCI address is the stand-in's GPU 1.
MISALIGNED_STORE = (
    "NVRM: GPU at PCI:0000:00:07: GPU-552642c4-9320-fede-05c4-612ceede6941",
    "NVRM: Xid (PCI:0000:07:00): 13, Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Misaligned Address",
    "NVRM: Xid (PCI:0000:07:00): 13, Graphics Exception: ESR 0x518730=0x500000f 0x518734=0x0",
    "NVRM: Xid (PCI:0000:07:00): 13, pid=505, name=c, Graphics Exception: channel 0x0000000a, Class 0000cbc0",
)


def test_an_event_is_a_mark_on_its_gpu(machine: FakeNvml, watcher: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(1, xid=79, xid_count=1)
    (mark,) = next_marks(watcher, clock)
    assert (mark.kind, mark.track, mark.severity) == ("xid", "gpu:1", Severity.ERROR)
    assert mark.text == "XID 79: the GPU has fallen off the bus; drain and restart the machine"
    assert next_marks(watcher, clock) == ()


def test_an_event_and_its_messages_are_one_mark(
    machine: FakeNvml, watcher: NvmlCollector, clock: Clock, kernel: Kernel
) -> None:
    machine.set_gpu(1, xid=13, xid_count=1)
    for line in MISALIGNED_STORE:
        kernel.say(line)
    (mark,) = next_marks(watcher, clock)
    assert mark.track == "gpu:1"
    assert mark.text == (
        "XID 13: a kernel raised an exception: bad address or instruction; restart the program "
        "(pid 505, c; Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Misaligned Address)"
    )
    said = "pid 505, c; Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Misaligned Address"
    assert mark.about == XidReport(
        13, f"a kernel raised an exception: bad address or instruction ({said})", "restart the program"
    )


@pytest.mark.parametrize("first", ["event", "log"])
def test_what_the_other_source_says_later_is_not_told_again(
    machine: FakeNvml, watcher: NvmlCollector, clock: Clock, kernel: Kernel, first: str
) -> None:
    def tell(source: str) -> None:
        if source == "event":
            machine.set_gpu(1, xid=13, xid_count=1)
        else:
            kernel.say(MISALIGNED_STORE[1])

    tell(first)
    assert len(next_marks(watcher, clock)) == 1
    tell("log" if first == "event" else "event")
    assert next_marks(watcher, clock) == ()
    kernel.say(MISALIGNED_STORE[1])
    assert len(next_marks(watcher, clock, seconds=6)) == 1, "a new fault"


def test_a_storm_is_one_mark_a_poll(machine: FakeNvml, watcher: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, xid=31, xid_count=250)
    texts = [mark.text for _ in range(4) for mark in next_marks(watcher, clock)]
    assert [text.rpartition(", ")[2] for text in texts] == ["100 times", "100 times", "50 times"]


def test_an_xid_of_an_unknown_gpu_is_told_all_the_same(watcher: NvmlCollector, clock: Clock, kernel: Kernel) -> None:
    kernel.say("NVRM: Xid (PCI:0002:ff:00): 9999, something new")
    (mark,) = next_marks(watcher, clock)
    assert mark.track == "gpu"
    assert mark.text.startswith("XID 9999: a code that is not listed here")


def test_a_mig_instances_xid_is_on_the_gpu(machine: FakeNvml, watcher: NvmlCollector, clock: Clock) -> None:
    machine.set_gpu(0, event_type=0x2000, xid_count=1, xid_instance=3)
    (mark,) = next_marks(watcher, clock)
    assert (mark.kind, mark.track) == (MarkKind.GPU_EVENT, "gpu:0/mig:3")
    assert mark.text == "poisoned data was used; every program is at risk"


def test_only_events_that_the_gpu_has_are_asked_for(machine: FakeNvml, clock: Clock) -> None:
    machine.set_gpu(0, event_types=0, **{"fail.nvmlDeviceRegisterEvents": NOT_SUPPORTED})
    with nvml_collector(clock) as collector:
        assert reasons(collector.poll())["gpu:0/xid"] == "the driver does not report it for this GPU"


def test_hostile_names_are_cleaned(watcher: NvmlCollector, clock: Clock, kernel: Kernel) -> None:
    kernel.say("NVRM: Xid (PCI:0000:06:00): 31, pid=7, name=[b]\x1b[2J, Ch 1")
    (mark,) = next_marks(watcher, clock)
    assert "(pid 7, [b]␛[2J; Ch 1)" in mark.text


# The kernel log by itself


def test_only_new_messages_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kmsg"
    path.write_bytes(b"6,1,1,-;old\n")
    monkeypatch.setattr(kernel_log, "PATH", str(path))
    log = KernelLog()
    log.open()
    assert (log.why_not, log.messages()) == (None, [])
    with path.open("ab") as file:
        file.write(b"6,2,2,-;new\n key=value\n")
    assert log.messages() == ["new"]
    assert str(path) in opened_files()
    log.close()
    log.close()
    assert log.messages() == []
    assert str(path) not in opened_files()


def opened_files() -> set[str]:
    return {str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()}


def test_a_log_that_cannot_be_read_says_why(
    machine: FakeNvml, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_log, "PATH", str(tmp_path / "absent"))
    with nvml_collector(clock, kernel_log=KernelLog()) as collector:
        trace = collector.poll()
    why = trace.why_missing(What("kernel_log"))
    assert why is not None
    assert why.reason == "the kernel log cannot be read: No such file or directory"
    assert "dmesg_restrict" in why.remedy


def test_overwritten_messages_are_passed_over(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    kernel.log.open()
    kernel.say("after the gap")
    answers = iter([BrokenPipeError(), None])
    read = os.read

    def lossy(fd: int, size: int) -> bytes:
        answer = next(answers, None)
        if answer is not None:
            raise answer
        return read(fd, size)

    monkeypatch.setattr("llmtop.collectors.kernel_log.os.read", lossy)
    assert kernel.log.messages() == ["after the gap"]
    kernel.log.close()


def test_a_log_that_breaks_is_closed_and_said_so(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> None:
    kernel.log.open()

    def broken(fd: int, size: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("llmtop.collectors.kernel_log.os.read", broken)
    assert kernel.log.messages() == []
    assert kernel.log.why_not is not None
    assert kernel.log.why_not.reason == "the kernel log cannot be read any more: Input/output error"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.", (0x2B, 79, "", "GPU has fallen off the bus.")),
        (
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping",
            (0x10, 63, "pid 1896", "Row Remapper: New row marked for remapping"),
        ),
        ("NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics", (0xCB, 13, "", "Graphics")),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", (3, 14, "", "Channel 00000001")),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 43, pid=9, name=py", (1, 43, "pid 9, py", "")),
        ("NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.", (0x9B, 79, "", "")),
        ("NVRM: GPU at PCI:0000:9b:00: GPU has fallen off the bus.", (0x9B, 79, "", "")),
    ],
)
def test_messages_of_the_driver(message: str, expected: tuple[int, int, str, str]) -> None:
    bus, code, process, detail = expected
    line = xid_line(message)
    assert line is not None
    assert (line.pci[1], line.code, line.process, line.detail) == (bus, code, process, detail)


@pytest.mark.parametrize("message", ["NVRM: loading NVIDIA UNIX Open Kernel Module", "usb 1-1: new device", ""])
def test_other_messages_are_none(message: str) -> None:
    assert xid_line(message) is None


@given(st.text())
def test_no_message_breaks_the_reader(text: str) -> None:
    assert xid_line(text) is None or isinstance(xid_line(text), XidLine)
    line = xid_line(f"NVRM: Xid (PCI:0000:2b:00): 13{text}")
    assert line is None or line.pci == (0, 0x2B, 0)
    assert pci_address(text) is None or len(text) > 4


# The codes


def test_the_codes_that_kill_a_server_have_an_action() -> None:
    deadly = {13, 31, 48, 64, 74, 79, 94, 95, 119, 120, 140}
    assert {code for code in deadly if XIDS[code].action is Action.NOTHING} == set()
    assert {XIDS[code].severity for code in deadly} == {Severity.ERROR}
    assert {xid(code).severity for code in (43, 45, 63, 92)} == {Severity.WARNING}


def test_an_action_is_said_after_the_meaning() -> None:
    assert str(xid(95)) == (
        "XID 95: memory error that was not contained: all programs are at risk; "
        "take every process off the GPU and reset it"
    )
    assert str(xid(63)) == "XID 63: a memory row is to be replaced by a spare at the next reset"
