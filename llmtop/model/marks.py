"""Moments at which something happened, and what is known of it as data."""

from __future__ import annotations

import re
from enum import StrEnum

from llmtop.frozen import frozen
from llmtop.model.findings import Severity
from llmtop.model.tracks import TrackId
from llmtop.model.values import Unknown


class MarkKind(StrEnum):
    """What sort of thing a mark is of, in the words of the event log."""

    PROCESS = "process"
    EXEC = "exec"
    SERVER = "server"
    METRICS_LOST = "metrics lost"
    METRICS_BACK = "metrics back"
    XID = "xid"
    GPU_LOST = "GPU lost"
    GPU_HUNG = "GPU hangs"
    GPU_BACK = "GPU back"
    GPU_EVENT = "GPU event"
    STUCK = "collector hangs"
    TRACER = "tracer"
    PROBES_ENDED = "probes ended"
    PROBES_BACK = "probes back"
    CORE_DUMP = "GPU core dump"


@frozen
class ProcessEnd:
    """That a process has ended.

    Attributes:
        how: "killed by SIGKILL", "exit code 1"; Unknown where nothing tells.
        is_regular: It ended as a program does that was told to.
    """

    pid: int
    how: str | Unknown
    is_regular: bool


@frozen
class Restart:
    """That another process has taken the place of a server's, whose PID was this."""

    old_pid: int


_HIT = re.compile(r"\bpid (\d{1,10})\b")
"""As `meaning` says whom an XID hit."""


@frozen
class XidReport:
    """A fault that the NVIDIA driver numbers.

    Attributes:
        meaning: What the code means, whom it hit, how often.
        action: What to do first; empty where nothing needs to be done, or the code is not known.
    """

    code: int
    meaning: str
    action: str

    @property
    def pid(self) -> int | None:
        """Of the process that it hit; None where the driver named none."""
        found = _HIT.search(self.meaning)
        return None if found is None else int(found[1])


@frozen
class FailedWarp:
    """A warp that failed, and the launch that it is of.

    Attributes:
        warp: Its place on the multiprocessor.
        grid, block: Sizes of the launch.
        block_index: The block that the warp is of; its first thread is `thread_index`.
        lanes: How many of its threads were at the instruction.
        lane: The one of them that carried it out, by the predicate that guards it; None where several did.
    """

    warp: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    block_index: tuple[int, int, int]
    thread_index: tuple[int, int, int]
    lanes: int
    lane: int | None


@frozen
class GpuFault:
    """A warp that failed, or a multiprocessor whose failed warps were gone, as a GPU's core dump has it.

    Attributes:
        exception: As cuda-gdb calls it: "Warp Illegal Address"; `code` is its number (CUDBGException_t).
        gpu: The track of its GPU; `sm` is the multiprocessor on it.
        kernel: The name of its kernel.
        stood: Where the warp stood; None where it had ended before the GPU was read, as it may behind a store.
        pc: The address of the instruction; None where the GPU did not keep it: then it is that of where the warp stood.
        function: What holds the instruction, at `offset` bytes from its beginning; empty where that is not known.
        place: File and line of the source; Unknown where the program was compiled without them.
        instruction: Its text, or why there is none.
        registers: Of the lane that failed, or of the first one, R0 first.
    """

    exception: str
    code: int
    gpu: TrackId
    sm: int
    kernel: str
    stood: FailedWarp | None
    pc: int
    is_exact: bool
    function: str = ""
    offset: int = 0
    place: str | Unknown = Unknown("its place in the source is not known")
    instruction: str | Unknown = Unknown("its text is not known")
    registers: tuple[int, ...] = ()


@frozen
class CoreDump:
    """A core dump of a GPU that a process under observation has left.

    Attributes:
        file: Where llmtop can open it, while it lies there.
        size: In bytes.
        gpu: The name of the GPU, as the dump has it; empty where nothing of it could be read.
        faults: What its kernels failed with, the first ones; registers are those of the first of each place alone.
        notes: What else is to be known of it.
        why_not: Why nothing is told of it: it was cut short, say.
    """

    file: str
    size: int
    gpu: str = ""
    faults: tuple[GpuFault, ...] = ()
    notes: tuple[str, ...] = ()
    why_not: Unknown | None = None


@frozen
class SanitizerError:
    """What compute-sanitizer reports once: an access, a race, a barrier, a call or an allocation that is wrong.

    Attributes:
        what: In its words, without the places: "Invalid __global__ write of size 4 bytes".
        function: Of the device, where the error is, at `offset` bytes; empty for what the host did.
        place: File and line of the source; Unknown where the program was compiled without them.
        thread: Its index, of `block`; None where the error is of none.
        notes: What else it says: addresses, the allocation next to it, the other side of a race.
        device_frames: The functions that led to it, the innermost first.
        host_frames: The same on the host, where the kernel was launched, the memory got, or the call made.
        hazards: How many pairs of accesses a race stands for; 0 for all else.
    """

    what: str
    severity: Severity = Severity.ERROR
    function: str = ""
    offset: int | None = None
    place: str | Unknown = Unknown("its place in the source is not known")
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    notes: tuple[str, ...] = ()
    device_frames: tuple[str, ...] = ()
    host_frames: tuple[str, ...] = ()
    hazards: int = 0


@frozen
class Mark:
    """A moment on the time axis: an XID, a GPU that is lost, a process that came or went.

    Attributes:
        said: What happened, in words; they follow the subject, where there is one.
        subject: Whom it happened to, where the track has gone with it or says less: "EngineCore (pid 4300)", "GPU 1:".
        about: The same as data, of what others draw conclusions from; why it is so, where there is something to do.
    """

    t_ns: int
    kind: MarkKind
    track: str
    said: str
    severity: Severity = Severity.INFO
    subject: str = ""
    about: ProcessEnd | Restart | XidReport | CoreDump | Unknown | None = None

    @property
    def text(self) -> str:
        """The whole sentence."""
        return f"{self.subject} {self.said}" if self.subject else self.said
