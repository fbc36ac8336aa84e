"""perf as a child process: found, started, listened to, and never left behind."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import IO

from llmtop import procfs, programs
from llmtop.collectors.tracing.helper.child import Child, ending, in_memory
from llmtop.collectors.tracing.helper.syscall_numbers import syscall_names
from llmtop.collectors.tracing.perf import perf_text
from llmtop.collectors.tracing.perf.perf_text import PerfSample
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.text import clean

Wait = Callable[[Sequence[int], float], list[int]]
"""select(2) for reading: which of these are ready within so many seconds."""
READY_S = 10.0
"""Opening events for a thousand threads takes a second or two on a loaded machine."""
READ_S = 20.0
"""For perf to end, and to print what it recorded."""
MOST_BYTES = 64 << 20
"""The longest record: the kernel ends perf where it goes beyond."""
_WORDS = 300
"""Characters that are told of what perf says."""
_INSTALL = "sudo apt install linux-perf"
_SCRIPT = ("--no-inline", "--ns", "--show-switch-events", "--show-lost-events")
_FIELDS = ("-F", "trace:pid,tid,time,event,ip,sym,dso,trace", "-F", "sw:pid,tid,time,period,event,ip,sym,dso")
_CALLS = ("--ns", "--show-lost-events", "-F", "trace:tid,time,event,trace")
_OTHERS = "/usr/lib"
"""Where Ubuntu keeps the perf of each kernel, in linux-tools-VERSION."""
_CAPABILITY = 'sudo setcap cap_perfmon,cap_sys_ptrace+ep "$(readlink -f "$(command -v perf)")"'
_CAN_SKIP_MAPS = (5, 16)
"""Since then `perf record --synth=no` leaves out the maps of all processes of the machine."""


class PerfError(Exception):
    """perf did not do as asked.

    Attributes:
        lasting: Whether it would end the same way the next time.
    """

    def __init__(self, why: Unknown, *, lasting: bool) -> None:
        super().__init__(why.reason)
        self.why = why
        self.lasting = lasting


@frozen
class PerfProgram:
    """A perf that starts."""

    path: str
    version: tuple[int, ...]

    @property
    def without_maps(self) -> tuple[str, ...]:
        """Options for records in which no function of a program is to be named."""
        return ("--synth=no",) if self.version >= _CAN_SKIP_MAPS else ()


def find() -> PerfProgram | Unknown:
    """A perf that starts.

    Ubuntu's /usr/bin/perf is a script that looks for the perf of the running kernel and fails where only another's is
    installed; that one will do, because perf's calls into the kernel stay the same.
    """
    first = programs.find("perf")
    others = sorted(Path(_OTHERS).glob("linux-tools*/**/perf"), key=_version_of, reverse=True)
    said = ""
    for path in [*([first] if first else []), *filter(programs.is_trusted, map(str, others))]:
        try:
            done = programs.run(
                [path, "--version"], capture_output=True, text=True, env=environment(), timeout=READY_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = said or type(error).__name__
            continue
        if done.returncode == 0 and done.stdout.startswith("perf version"):
            return PerfProgram(path, _version_of(done.stdout))
        said = said or done.stderr
    if not first and not others:
        return Unknown(clean(programs.why_none("perf")), _INSTALL)
    if wrong := re.search(r"perf not found for kernel (\S+)", said):
        return Unknown(f"perf is not installed for kernel {clean(wrong.group(1))}", _INSTALL)
    return Unknown(f"perf does not start: {_last_line(said)}", _INSTALL)


def _version_of(text: Path | str) -> tuple[int, ...]:
    """The numbers in a path or in "perf version 6.1.192", to compare.

    >>> _version_of("perf version 5.15.0-91")
    (5, 15, 0, 91)
    """
    return tuple(int(number) for number in re.findall(r"\d+", str(text)))


def environment() -> dict[str, str]:
    """What perf is run with: no translation, no settings of the user's, no pager, and nothing looked up on the net."""
    kept = {
        name: value
        for name, value in programs.environment().items()
        if not name.startswith(("LC_", "PERF_", "DEBUGINFOD"))
    }
    return kept | {"LC_ALL": "C", "LANG": "C", "PERF_CONFIG": "/dev/null", "DEBUGINFOD_URLS": "", "PAGER": "cat"}


class Perf(Child):
    """One perf that runs: what it writes lies in memory, and it ends with this process."""

    def __init__(self, argv: Sequence[str], *, pass_fds: Sequence[int] = ()) -> None:
        self._output = in_memory()
        super().__init__(argv, output=self._output, env=environment(), pass_fds=pass_fds, limit=_limit)
        self._end = os.pidfd_open(self.process.pid)

    def wait(self, wait: Wait, seconds: float) -> bool:
        """Whether it has ended within so many seconds."""
        wait([self._end], seconds)
        return self.process.poll() is not None

    def wait_for(self, descriptor: int, wait: Wait, seconds: float) -> bool:
        """Whether something can be read from a descriptor before it ends."""
        ready = wait([descriptor, self._end], seconds)
        return descriptor in ready

    def interrupt(self) -> None:
        """Tell it to finish."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)

    def output(self) -> IO[bytes]:
        """What it wrote, from the start."""
        self._output.seek(0)
        return self._output

    def close(self) -> None:
        """End it if it runs, and give its memory back."""
        super().close()
        os.close(self._end)
        self._output.close()


class Recording:
    """`perf record` that opens its events at once and counts from a sign to another."""

    def __init__(self, perf: str, options: Sequence[str]) -> None:
        self._perf = perf
        self._data = in_memory()
        commands, self._command = os.pipe()
        self._answer, answers = os.pipe()
        start = (perf, "record", "-q", "-B", "-N", "-k", "CLOCK_MONOTONIC", "-D", "-1")
        where = (f"--control=fd:{commands},{answers}", "-o", self._path)
        self._record = Perf((*start, *where, *options), pass_fds=(commands, answers, self._data.fileno()))
        os.close(commands)
        os.close(answers)
        self.lost = 0

    @property
    def _path(self) -> str:
        """The record's name for children that were passed its descriptor."""
        return f"/proc/self/fd/{self._data.fileno()}"

    def tell(self, command: str, wait: Wait) -> None:
        """Give a command ("enable", "disable") and wait until perf has done it.

        Raises:
            PerfError: It has ended instead, or does not answer.
        """
        try:
            os.write(self._command, f"{command}\n".encode())
        except BrokenPipeError:
            raise self._failed() from None
        if not self._record.wait_for(self._answer, wait, READY_S) or not os.read(self._answer, 64):
            raise self._failed()

    def stop(self) -> None:
        """Look no longer. It takes perf a while to let go of its events: see `samples`."""
        self._record.interrupt()

    def samples(self, wait: Wait) -> Iterator[PerfSample]:
        """What it has recorded, by `perf script`.

        Raises:
            PerfError: perf failed, or takes too long.
        """
        with closing(self._read("script", (*_SCRIPT, *_FIELDS), wait)) as script:
            yield from perf_text.samples(self._without_losses(script.output()))

    def calls(self, wait: Wait) -> tuple[perf_text.ThreadCalls, ...]:
        """The system calls that it has recorded, by `perf trace`; where that crashes (perf 6.12), event by event.

        Raises:
            PerfError: perf failed, or takes too long.
        """
        with closing(self._run("trace", ("-s",), wait)) as trace:
            if trace.process.returncode == 0:
                said = trace.errors()
                self.lost += perf_text.lost_events(said)
                return perf_text.thread_calls(said.splitlines())
            if trace.process.returncode > 0:
                raise PerfError(explain(trace.errors(), "perf trace"), lasting=False)
        with closing(self._read("script", _CALLS, wait)) as script:
            return perf_text.raw_calls(self._without_losses(script.output()), syscall_names())

    def _read(self, command: str, options: Sequence[str], wait: Wait) -> Perf:
        """A perf that has read the record.

        Raises:
            PerfError: It failed, or takes too long.
        """
        reader = self._run(command, options, wait)
        if reader.process.returncode != 0:
            said = reader.errors()
            reader.close()
            raise PerfError(explain(said, f"perf {command}"), lasting=False)
        return reader

    def _run(self, command: str, options: Sequence[str], wait: Wait) -> Perf:
        """A perf that was given the record, and has ended.

        Raises:
            PerfError: It takes too long.
        """
        if not self._record.wait(wait, READ_S):
            raise PerfError(Unknown("perf record does not end"), lasting=False)
        self.lost += perf_text.lost_events(self._record.errors())
        reader = Perf((self._perf, command, *options, "-i", self._path), pass_fds=(self._data.fileno(),))
        with ExitStack() as unless_done:
            unless_done.callback(reader.close)
            if not reader.wait(wait, READ_S):
                raise PerfError(Unknown(f"perf {command} takes too long"), lasting=False)
            unless_done.pop_all()
        return reader

    def _without_losses(self, lines: IO[bytes]) -> Iterator[str]:
        for raw in lines:
            line = raw.decode("utf-8", "replace")
            if "PERF_RECORD_LOST" in line:
                self.lost += sum(int(count) for count in re.findall(r"lost (\d+)\s*$", line))
            else:
                yield line

    def close(self) -> None:
        """Leave nothing behind."""
        self._record.close()
        self._data.close()
        os.close(self._command)
        os.close(self._answer)

    def _failed(self) -> PerfError:
        with suppress(subprocess.TimeoutExpired):
            self._record.process.wait(1.0)
        return failed(self._record, "perf record")


def failed(perf: Perf, what: str) -> PerfError:
    """Why a perf ended that should not have."""
    said = perf.errors()
    if perf.process.poll() is None:
        return PerfError(Unknown(f"{what} does not answer"), lasting=False)
    if not said.strip():
        return PerfError(Unknown(f"{what} ended: {ending(perf.process.returncode)}"), lasting=False)
    is_passing = re.search(r"No such process|Problems finding threads|[Cc]ouldn't (find|create thread)", said)
    return PerfError(explain(said, what), lasting=not is_passing)


_DENIED = re.compile(
    r"[Aa]ccess to performance monitoring|may not have permission|[Nn]o permission|Permission denied"
    r"|[Oo]peration not permitted|perf_event_paranoid|[Ll]ockdown"
)


def explain(said: str, what: str, *, root: bool | None = None) -> Unknown:
    """What perf says over pages, in one sentence, with the command that changes it.

    Args:
        said: Its standard error.
        what: The command: "perf record".
        root: Whether this is root; by default it is asked.
    """
    is_root = os.geteuid() == 0 if root is None else root
    if "lockdown" in said.lower():
        return Unknown("the kernel is locked down against perf", "boot without lockdown=confidentiality")
    if re.search(r"not supported by this kernel|returned with 38|Function not implemented", said):
        return Unknown("this kernel or container has no perf events", "docker run --privileged --pid=host ...")
    if "Permission error mapping" in said:
        return Unknown("perf may lock no more memory", "sudo sysctl kernel.perf_event_mlock_kb=8192")
    if re.search(r"unknown option `(control|clockid|switch-events)", said):
        return Unknown("this perf is too old", f"perf 5.10 or newer: {_INSTALL}")
    if re.search(r"unknown tracepoint|tracing/+events|tracefs|debugfs|trace events", said) and not is_root:
        remedy = f"sudo llmtop ...; or {_CAPABILITY} && sudo mount -o remount,mode=755 /sys/kernel/tracing"
        return Unknown("the kernel's tracepoints are for root", remedy)
    if re.search(r"unknown tracepoint|tracing/+events|tracefs|debugfs|trace events", said):
        return Unknown("tracefs is not there", "sudo mount -t tracefs tracefs /sys/kernel/tracing")
    if _DENIED.search(said):
        told = re.search(r"perf_event_paranoid setting is (-?\d+)", said)
        return _denied(is_root, int(told.group(1)) if told else paranoia())
    return Unknown(f"{what} failed: {_last_line(said) or 'it gave no reason'}")


def paranoia() -> int | None:
    """kernel.perf_event_paranoid; None where there are no perf events."""
    level = procfs.read_text("/proc/sys/kernel/perf_event_paranoid")
    return int(level) if level is not None else None


def _denied(is_root: bool, level: int | None) -> Unknown:
    if is_root:
        return Unknown("this container's root may not use perf events", "docker run --privileged --pid=host ...")
    if level is not None and level > 2:
        remedy = f"sudo sysctl kernel.perf_event_paranoid=2 for stacks of your own processes; or {_CAPABILITY}"
        return Unknown(f"perf is for root only (perf_event_paranoid {level})", remedy)
    return Unknown(f"perf may not look at this (perf_event_paranoid {level})", f"sudo llmtop ...; or {_CAPABILITY}")


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("#")]
    first = next((line for line in lines if line not in ("Error:", "WARNING:")), "")
    return clean(first)[:_WORDS]


def _limit() -> None:
    """Of what it writes, of what is left of it where it crashes (core(5)), and as many files as threads need."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
