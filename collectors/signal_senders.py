"""Who has sent a process the signal that ends it: the kernel tells it as it happens, and keeps it nowhere.

The tracepoint signal:signal_generate is listened to on every CPU, through perf_event_open(2) alone, so whatever tracer
is in use. A filter in the kernel lets through only the few signals that end servers: on most machines a handful a
minute. Beside them the kernel writes down the names that processes take (PERF_RECORD_COMM), because who runs
`kill -9 PID` is gone at once.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import select
import signal
import struct
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from llmtop import procfs
from llmtop.collectors.base import DoctorCheck
from llmtop.facts import SignalSender
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, Unknown, UnknownKind
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM)
"""What people, supervisors and servers themselves end a server with."""
OBEYED_NS = 120 * NS_PER_S
"""A server that was told to end may finish the requests that run first; what was sent earlier ended nothing."""
_BY_TERMINAL = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
TRACEPOINT = "signal:signal_generate"
_FILTER = f"result==0 && ({' || '.join(f'sig=={int(one)}' for one in ENDING)})"
"""Result 0 is "delivered" (include/trace/events/signal.h): what a process ignores, or gets when it was killed already,
ends nothing."""
_FIELDS = ("common_pid", "sig", "code", "pid")
_BY_KERNEL = 0x80
"""SI_KERNEL of include/uapi/asm-generic/siginfo.h: no process has asked for it."""
_COMM, _SAMPLE = 3, 9
"""enum perf_event_type; a sample of ours is its TID, time and raw data, in this order."""
_SAMPLE_TYPE = 1 << 1 | 1 << 2 | 1 << 10
_FLAGS = 1 << 9 | 1 << 25
"""Names as they are taken, and times of the monotonic clock."""
_RECORD = struct.Struct("=IHH")
_SAMPLED = struct.Struct("=IIQI")
_NAMED = struct.Struct("=II")
_HEAD, _TAIL = 1024, 1032
"""Where in the first page the kernel and the reader say how far they are: struct perf_event_mmap_page."""
_RING = 8 * procfs.PAGE_BYTES
"""Of each CPU: some 800 names between two looks, a tenth of a second apart."""
_MOST_SIGNALS, _MOST_NAMES = 256, 2048
_FIELD = r"\b{}(?:\[\w*\])?;\s*offset:(\d+);\s*size:4;"
_PATIENCE_S = 5.0
"""For `llmtop doctor`: until the kernel has told whether senders can be seen."""
_SLOW = Unknown(f"not known within {_PATIENCE_S:.0f} s", "try it again", UnknownKind.PASSING)
_NO_ROOT = Unknown("who sends signals is told to root alone", "sudo llmtop ...")


@frozen
class Sent:
    """A signal on its way.

    Attributes:
        pid: Who sent it; where the kernel did so, who ran just then.
        name: What the sender is called; empty where it was gone and had not been seen to take a name.
        is_from_kernel: No process asked for it: a terminal, the OOM killer, a PID namespace that ends.
    """

    number: int
    t_ns: int
    pid: int
    name: str
    is_from_kernel: bool

    def origin(self, own: Mapping[int, str]) -> SignalSender:
        """Where it came from; `own` has the server's processes by PID."""
        if self.is_from_kernel:
            return SignalSender.KERNEL
        return SignalSender.OWN if self.pid in own else SignalSender.OUTSIDE

    def by(self, target: int, own: Mapping[int, str]) -> str:
        """The sender in words; `own` has the roles of the server's processes, by PID."""
        if self.is_from_kernel:
            return "its terminal" if self.number in _BY_TERMINAL else "the kernel"
        if self.pid == target:
            return "itself"
        if self.pid in own:
            return f"the server's own {own[self.pid]} (pid {self.pid})"
        return f"pid {self.pid} ({self.name or 'gone since'})"


class SignalSenders:
    """Listens from `open` on, for all processes; told of are those asked for."""

    def __init__(self) -> None:
        self._rings: list[_Ring] = []
        self._places: dict[str, int] = {}
        self._names: OrderedDict[int, str] = OrderedDict()
        self._sent: OrderedDict[tuple[int, int], Sent] = OrderedDict()
        """By target and signal: the newest."""
        self.unavailable: Unknown | None = None
        """Why nothing can be told here; None while it listens, or has not begun to."""
        self.is_listening = False
        """Whether signals are seen by now."""
        self._tried = threading.Event()
        self._reading = threading.Lock()
        self._leave = -1
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Begin to listen, in a thread of its own: it sees tracefs where the machine has not mounted it.

        It wakes up with each signal, while its sender can still be asked for its name.
        """
        self._leave = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._listen, name="signal senders", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait until it listens, or it is known why it cannot; false where that takes longer."""
        return self._tried.wait(seconds)

    def close(self) -> None:
        """Listen no longer."""
        if self._thread is not None:
            os.eventfd_write(self._leave, 1)
            self._thread.join()
            os.close(self._leave)
            self._thread = None

    def read(self) -> None:
        """Take in what came; to be called now and then, before the names that are taken have no room."""
        with self._reading:
            records = [record for ring in self._rings for record in ring.records()]
            for kind, body in records:
                if kind == _COMM:
                    self._note_name(body)
            for kind, body in records:
                if kind == _SAMPLE:
                    self._note_signal(body)

    def of(self, pid: int, numbers: tuple[int, ...], *, since_ns: int = 0) -> Sent | None:
        """The last of these signals that was sent to a process."""
        self.read()
        sent = [one for number in numbers if (one := self._sent.get((pid, number))) is not None]
        return max((one for one in sent if one.t_ns >= since_ns), key=lambda one: one.t_ns, default=None)

    def _listen(self) -> None:
        self._attach()
        self.is_listening = self.unavailable is None
        self._tried.set()
        with select.epoll() as poll:
            for fd in (self._leave, *(ring.event for ring in self._rings)):
                poll.register(fd, select.EPOLLIN)
            while all(fd != self._leave for fd, _ in poll.poll()):
                self.read()
        with self._reading:
            while self._rings:
                self._rings.pop().close()

    def _attach(self) -> None:
        from llmtop.collectors.tracing.helper import kernel, system

        try:
            if system.pid_namespace() is not None:
                self.unavailable = Unknown("who sends signals is told by the machine's own PIDs", "llmtop on the host")
                return
            system.see_tracepoints()
            told = (system.tracefs() / "events" / TRACEPOINT.replace(":", "/") / "format").read_text()
            self._places = _places(told)
            self._rings += (_Ring(cpu) for cpu in kernel.cpus_online())
        except system.UnavailableError as error:
            self.unavailable = Unknown(error.reason, error.remedy)
        except (OSError, ValueError, KeyError) as error:
            refused = getattr(error, "errno", 0) in (errno.EACCES, errno.EPERM)
            self.unavailable = _NO_ROOT if refused else Unknown(f"who sends signals cannot be told: {error}")

    def _note_name(self, body: bytes) -> None:
        _, tid = _NAMED.unpack_from(body)
        self._names[tid] = body[_NAMED.size :].split(b"\0", 1)[0].decode("utf-8", "replace")
        self._names.move_to_end(tid)
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)

    def _note_signal(self, body: bytes) -> None:
        sender, tid, t_ns, size = _SAMPLED.unpack_from(body)
        raw = body[_SAMPLED.size : _SAMPLED.size + size]
        _, number, code, pid = (struct.unpack_from("=i", raw, self._places[name])[0] for name in _FIELDS)
        before = self._sent.get((pid, number))
        if sender == pid and before is not None and t_ns - before.t_ns < OBEYED_NS:
            return  # Uvicorn sends itself the signal that it was sent, once it has shut down
        name = procfs.name(sender) or self._names.get(tid) or self._names.get(sender, "")
        self._sent[pid, number] = Sent(number, t_ns, sender, clean(name), code == _BY_KERNEL)
        self._sent.move_to_end((pid, number))
        if len(self._sent) > _MOST_SIGNALS:
            self._sent.popitem(last=False)


def checks() -> tuple[DoctorCheck, ...]:
    """Whether senders can be told here, for `llmtop doctor`."""
    senders = SignalSenders()
    senders.open()
    is_known = senders.wait(_PATIENCE_S)
    senders.close()
    state = senders.unavailable or ("seen: who has killed or ended a server, by PID and name" if is_known else _SLOW)
    return (DoctorCheck("who sends signals", state),)


class _Ring:
    """What one CPU has to tell.

    Raises:
        OSError: The kernel tells this user nothing.
    """

    def __init__(self, cpu: int) -> None:
        from llmtop.collectors.tracing.helper import kernel

        self.event = kernel.listen_to_tracepoint(TRACEPOINT, cpu, _FILTER, _SAMPLE_TYPE, _FLAGS)
        try:
            self._pages = mmap.mmap(
                self.event, procfs.PAGE_BYTES + _RING, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
            )
        except OSError:
            os.close(self.event)
            raise

    def close(self) -> None:
        self._pages.close()
        os.close(self.event)

    def records(self) -> Iterator[tuple[int, bytes]]:
        """(kind, what follows the header) of all there are; they make room for the next."""
        (head,), (tail,) = (struct.unpack_from("=Q", self._pages, place) for place in (_HEAD, _TAIL))
        while tail < head:
            kind, _, size = _RECORD.unpack(self._bytes(tail, _RECORD.size))
            if size < _RECORD.size:  # a header that is not one: give up on the rest
                break
            yield kind, self._bytes(tail + _RECORD.size, size - _RECORD.size)
            tail += size
        struct.pack_into("=Q", self._pages, _TAIL, head)

    def _bytes(self, place: int, size: int) -> bytes:
        """These bytes, of which some may stand at the ring's beginning again."""
        start = place % _RING
        first = self._pages[procfs.PAGE_BYTES + start : procfs.PAGE_BYTES + min(start + size, _RING)]
        return first + self._pages[procfs.PAGE_BYTES : procfs.PAGE_BYTES + size - len(first)]


def _places(told: str) -> dict[str, int]:
    """Where this kernel has the fields that are read; builds with real-time patches have more before them.

    Raises:
        ValueError: It has them not, or of another size.
    """
    found = {name: re.search(_FIELD.format(name), told) for name in _FIELDS}
    if missing := [name for name, match in found.items() if match is None]:
        raise ValueError(f"{TRACEPOINT} has no field {missing[0]}")
    return {name: int(match[1]) for name, match in found.items() if match is not None}
