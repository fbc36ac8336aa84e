"""NVIDIA GPUs through NVML, asked in a process of its own: a driver that hangs or crashes takes only that with it."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from llmtop import programs, whats
from llmtop.collectors import children
from llmtop.collectors.base import DoctorCheck
from llmtop.collectors.nvml.sides import HUNG_NS, LENGTH, LIBRARY, NAME, OWNS, PERIOD_S, hung
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import (
    LIVE,
    NS_PER_S,
    Mark,
    MarkKind,
    Metric,
    Missing,
    Reading,
    Severity,
    Trace,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    UnknownKind,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from llmtop.collectors.base import Clock, Collector

_RETRY_NS = 10 * NS_PER_S
"""From one start of the helper to the next, where it ends by itself."""
_CHUNK = 1 << 20
"""Bytes of the helper's output that are read at once."""


@frozen
class Patience:
    """How long NVML's process is waited for, in seconds.

    Attributes:
        start_s: For its first words, from the start on.
        answer_s: For a poll: one that GPUs hang in takes 0.8 s.
        hung_s: For a poll, once it counts as hung.
        stop_s: For its end, before it is made to end.
        killed_s: And from then on: what hangs in the kernel ends when its call does.
    """

    start_s: float = 2.5
    answer_s: float = 1.2
    hung_s: float = 0.2
    stop_s: float = 0.3
    killed_s: float = 0.3


PATIENCE = Patience()


class GpuCollector:
    """What `nvml.NvmlCollector` sees, through its process.

    Args:
        clock: Where time is read.
        patience: How long its process is waited for.
    """

    name = NAME
    owns = OWNS
    period_s = PERIOD_S

    def __init__(self, clock: Clock = time.monotonic_ns, patience: Patience = PATIENCE) -> None:
        self._clock = clock
        self._patience = patience
        self._process: _HelperProcess | None = None
        self._started_ns = 0
        self._asked_ns: int | None = None
        """When the poll was asked for that is not answered yet."""
        self._is_ready = self._is_loaded = False
        self._is_told = False
        self._unpacker = _Unpacker()
        self._why_not: Unknown | None = None

    def prepare(self) -> None:
        """Let the library be loaded: nvmlInit takes 100 ms, and seconds where nothing keeps the driver loaded."""
        self._start()

    def missing(self) -> Unknown | None:
        """Why there is nothing to poll; None too where that is not known yet, because the driver hangs."""
        if self._process is None:
            self._start()
        self._hear_until(self._patience.start_s, lambda: self._is_ready or self._process is None)
        return self._why_not if self._process is None else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def poll(self) -> Trace:
        """Ask, and wait for the answer as long as it should take; what comes later comes with a later poll."""
        now_ns = self._clock()
        if self._process is None and now_ns - self._started_ns >= _RETRY_NS:
            self._start()
        if self._process is not None and self._is_ready and self._asked_ns is None:
            self._ask(now_ns)
        patience_s = self._patience.hung_s if self._is_told else self._patience.answer_s
        self._hear_until(patience_s, lambda: self._process is None or (self._is_ready and self._asked_ns is None))
        return self._said(self._clock())

    def _said(self, now_ns: int) -> Trace:
        """The poll that was answered; else why there is none."""
        trace = self._unpacker.take()
        if trace is not None:
            marks = trace.marks
            if self._is_told:
                marks = (*marks, Mark(now_ns, MarkKind.STUCK, self.name, "NVML answers again"))
            self._is_told = False
            return replace(trace, marks=marks)
        why = self._why_silent(now_ns)
        if why is None:
            return Trace(LIVE, now_ns, now_ns, tracks=self._unpacker.tracks, missing=self._unpacker.missing)
        stuck = Mark(now_ns, MarkKind.STUCK, self.name, f"NVML: {why.reason}", Severity.ERROR)
        marks = () if self._is_told else (stuck,)
        self._is_told = True
        return Trace(
            LIVE,
            now_ns,
            now_ns,
            tracks=self._unpacker.tracks,
            readings=self._unpacker.gaps(now_ns),
            marks=marks,
            missing=(Missing(whats.source(self.name), why),),
        )

    def _why_silent(self, now_ns: int) -> Unknown | None:
        """Why no poll is answered; None where it is too early to say."""
        if self._process is None:
            return self._why_not
        since_ns = self._asked_ns if self._is_ready and self._asked_ns is not None else self._started_ns
        if now_ns - since_ns < HUNG_NS:
            return None
        seconds = f"{(now_ns - since_ns) / NS_PER_S:.0f} s"
        if not self._is_loaded:
            return hung(f"loading {LIBRARY} has not ended for {seconds}")
        return hung(f"NVML's process has not answered for {seconds}")

    # The process

    def _start(self) -> None:
        self._process, self._started_ns = _HelperProcess(), self._clock()
        self._is_ready = self._is_loaded = False
        self._asked_ns, self._why_not = None, None
        self._unpacker.restart()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.close(self._patience)
            self._process = None

    def _ask(self, now_ns: int) -> None:
        assert self._process is not None
        self._asked_ns = now_ns
        self._process.ask()

    def _hear_until(self, patience_s: float, is_enough: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + patience_s
        while not is_enough() and (left_s := deadline_s - time.monotonic()) > 0:
            assert self._process is not None
            for message in self._process.messages(left_s):
                self._take(message)
            if self._process.is_at_end:
                self._bury()

    def _take(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "loaded":
                self._is_loaded = True
            case "ready":
                self._is_ready = True
            case "unavailable":
                self._why_not = message["why"]
            case "poll":
                self._asked_ns = None
                self._unpacker.unpack(message)

    def _bury(self) -> None:
        assert self._process is not None
        how = self._process.close(self._patience)
        self._process = None
        if self._why_not is None:
            self._why_not = Unknown(
                f"NVML's process ended: {how}", "it is started again by itself; dmesg may say more", UnknownKind.PASSING
            )


class _HelperProcess:
    """The helper, from start to end."""

    def __init__(self) -> None:
        lifeline, self._lifeline = os.pipe()
        try:
            self._popen = programs.start(
                programs.module("llmtop.collectors.nvml.helper", str(lifeline)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                pass_fds=(lifeline,),
                start_new_session=True,  # Ctrl+C and the terminal's hang-up are for llmtop
            )
        finally:
            os.close(lifeline)
        assert self._popen.stdout is not None
        self._output = self._popen.stdout.fileno()
        os.set_blocking(self._output, False)
        self._rest = bytearray()
        self.is_at_end = False
        children.note(self._popen.pid)

    def ask(self) -> None:
        """For one poll."""
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):  # its end is seen where its output ends
            self._popen.stdin.write(b"p")

    def messages(self, wait_s: float) -> list[dict[str, Any]]:
        """What it has said, waiting for the first of it."""
        if not select.select([self._output], [], [], wait_s)[0]:
            return []
        with suppress(BlockingIOError):
            while chunk := os.read(self._output, _CHUNK):
                self._rest += chunk
            self.is_at_end = True
        return list(self._whole())

    def _whole(self) -> Iterator[dict[str, Any]]:
        while len(self._rest) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._rest)
            if len(self._rest) < LENGTH.size + size:
                return
            yield pickle.loads(self._rest[LENGTH.size : LENGTH.size + size])  # from our own child only
            del self._rest[: LENGTH.size + size]

    def close(self, patience: Patience) -> str:
        """End it, and wait only a moment. How it ended, in words."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        try:
            code: int | None = self._popen.wait(patience.stop_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(patience.killed_s)
            code = None
        self._popen.stdout.close()
        os.close(self._lifeline)
        children.forget(self._popen.pid)
        if code is None:
            return "it did not answer and was ended"
        return f"by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class _Unpacker:
    """Polls from plain data, with metrics that are the same objects each time."""

    def __init__(self) -> None:
        self.tracks: dict[TrackId, Track] = {}
        self.missing: tuple[Missing, ...] = ()
        self._metrics: list[Metric] = []
        self._traces: list[Trace] = []
        self._alive: dict[tuple[str, str], Reading] = {}

    def restart(self) -> None:
        """Another process numbers its metrics anew."""
        self._metrics.clear()

    def unpack(self, message: dict[str, Any]) -> None:
        """Take one poll in."""
        self._metrics += message["metrics"]
        self.tracks = message.get("tracks", self.tracks)
        self.missing = message.get("missing", self.missing)
        readings = tuple(
            Reading(track, self._metrics[number], t_ns, value, source)
            for track, number, t_ns, value, source in message["readings"]
        )
        for one in readings:
            if one.value is None:
                self._alive.pop((one.track, one.metric.name), None)
            else:
                self._alive[one.track, one.metric.name] = one
        start_ns, end_ns = message["span"]
        gone, marks, issues = message["gone"], message["marks"], message["issues"]
        for key in [key for key in self._alive if key[0] in gone]:
            del self._alive[key]
        self._traces.append(
            Trace(
                LIVE,
                start_ns,
                end_ns,
                tracks=self.tracks,
                readings=readings,
                marks=marks,
                missing=self.missing,
                issues=issues,
                gone=gone,
            )
        )

    def take(self) -> Trace | None:
        """The poll that came; a poll is asked for only when the last was answered."""
        return self._traces.pop() if self._traces else None

    def gaps(self, t_ns: int) -> tuple[Reading, ...]:
        """The end of every line: what was said last is not "now" any more."""
        alive, self._alive = self._alive, {}
        return tuple(Reading(one.track, one.metric, t_ns, None, one.source) for one in alive.values())


def checks(collector: Collector | None = None, clock: Clock = time.monotonic_ns) -> tuple[DoctorCheck, ...]:
    """What `llmtop doctor` says of the GPUs here, within some seconds whatever hangs.

    Args:
        collector: What sees them; by default one with a process of its own.
        clock: The collector's.
    """
    found = _look(collector or GpuCollector(clock), clock)
    return (DoctorCheck("NVIDIA GPUs (NVML)", found),) if isinstance(found, Unknown) else _checks_of(found)


def _checks_of(trace: Trace) -> tuple[DoctorCheck, ...]:
    """What `llmtop doctor` says of the GPUs here, after a poll."""
    why = trace.why_missing(whats.source(NAME))
    if why is not None:
        return (DoctorCheck("NVIDIA GPUs (NVML)", why),)
    gpus = trace.tracks_of(TrackKind.GPU)
    return (
        *(DoctorCheck(f"GPU {gpu.facts.get(GpuFact.INDEX, gpu.id)}", _state(trace, gpu)) for gpu in gpus),
        DoctorCheck("GPM (live roofline)", _gpm_state(gpus)),
        DoctorCheck("GPU processes", _first_reason(trace, whats.Facet.PROCESSES) or "visible"),
        DoctorCheck("XID events", _first_reason(trace, whats.Facet.XID) or "watched"),
        DoctorCheck("Kernel log (process behind an XID)", trace.why_missing(whats.KERNEL_LOG) or "readable"),
    )


def _state(trace: Trace, gpu: Track) -> str | Unknown:
    if (why := trace.why_missing(whats.track(gpu.id))) is not None:
        return why
    mig = ", MIG" if gpu.facts.get(GpuFact.MIG) == "enabled" else ""
    return f"{gpu.name}, driver {gpu.facts.get(GpuFact.DRIVER, '?')}{mig}"


def _gpm_state(gpus: tuple[Track, ...]) -> str | Unknown:
    states = [gpu.facts.get(GpuFact.GPM, Unknown("the GPU does not answer")) for gpu in gpus]
    reasons = [state for state in states if isinstance(state, Unknown)]
    if not reasons:
        return "supported"
    if len(reasons) == len(states):
        return reasons[0]
    return f"supported on {len(states) - len(reasons)} of {len(states)} GPUs; on the others: {reasons[0].reason}"


def _first_reason(trace: Trace, part: whats.Facet) -> Unknown | None:
    return next((missing.why for missing in trace.missing if whats.is_facet(missing.what, part)), None)


def gpus_now(collector: Collector | None = None, clock: Clock = time.monotonic_ns) -> tuple[Track, ...] | None:
    """The GPUs here, in a process that ends with the answer; None without NVML, and where it hangs. As `checks`."""
    found = _look(collector or GpuCollector(clock), clock)
    if isinstance(found, Unknown) or found.why_missing(whats.source(NAME)):
        return None
    return found.tracks_of(TrackKind.GPU)


def _look(collector: Collector, clock: Clock) -> Trace | Unknown:
    """One look that each GPU has answered, or has been waited for long enough to be said to hang."""
    why = collector.missing()
    if why is not None:
        return why
    with collector:
        trace = collector.poll()
        deadline_ns = clock() + 3 * HUNG_NS // 2
        while clock() < deadline_ns and not _has_said_all(trace):
            trace = collector.poll()
    return trace


def _has_said_all(trace: Trace) -> bool:
    """Whether each GPU has told of itself, or why it does not."""
    if trace.why_missing(whats.source(NAME)):
        return True
    gpus = trace.tracks_of(TrackKind.GPU)
    return bool(gpus) and all(GpuFact.DRIVER in gpu.facts or trace.why_missing(whats.track(gpu.id)) for gpu in gpus)


def collector() -> Collector:
    """For the registry."""
    return GpuCollector()
