"""How a process ended, for one who is not its parent: what the kernel keeps of it, its cgroup, and the kernel's log.

Nothing is attached to a process for this. A pidfd is only a name for it: it takes no signal, no trace and no memory,
and needs no right. From Linux 6.15 on it tells the exit status once the parent has taken it (`PIDFD_GET_INFO`,
include/uapi/linux/pidfd.h); on older kernels the status is known only where the process was seen as a zombie.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llmtop import procfs
from llmtop.collectors import cgroups
from llmtop.collectors.end_times import EndTimes
from llmtop.collectors.kernel_log import KernelLog, open_from_start
from llmtop.collectors.signal_senders import ENDING, OBEYED_NS, Sent
from llmtop.frozen import frozen
from llmtop.model import Unknown
from llmtop.text import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from llmtop.collectors.signal_senders import SignalSenders

_INFO = struct.Struct("QQ11Ii")
"""struct pidfd_info of version 0: mask, cgroup, eleven ids, exit status."""
_GET_INFO = 0xC000_0000 | _INFO.size << 16 | 0xFF << 8 | 11
_EXIT = 1 << 3
_STATUS_FIELD = 49
"""Of /proc/PID/stat, counted from behind the name: field 52, the status in the form of waitpid(2)."""
_MOST_WORDS = 100
"""Characters that are told of a process's last words."""
MOST_WATCHED = 256
"""A descriptor each: a server that forks for each request must not use them up."""
_NAMED = re.compile(
    r"Killed process (?P<oom>\d+) |[^\s\[]+\[(?P<trap>\d+)\]:? (?:segfault|trap|general protection)"
    r"|NVRM: Xid .*?pid='?(?P<xid>\d+)'?"
)
"""Lines of the kernel's log that name a process it ended: the OOM killer's, a fault's, an NVIDIA driver's XID."""
_REGULAR = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What people and supervisors stop a server with."""
_NOT_KEPT = Unknown(
    "its exit status is not known: only its parent gets it before Linux 6.15", "see the server's log, and: dmesg -T"
)


@frozen
class Exit:
    """How a process ended.

    Attributes:
        text: "killed by SIGKILL", "exit code 1"; Unknown where nothing tells.
        is_regular: It ended as a program does that was told to: exit code 0, SIGTERM, SIGINT or SIGHUP.
        is_killed: Somebody sent it SIGKILL: a person, or the server that it belongs to.
        is_oom: The kernel ended it for want of memory.
        words: The kernel's own line about it; empty where there is none.
    """

    text: str | Unknown = _NOT_KEPT
    is_regular: bool = False
    is_killed: bool = False
    is_oom: bool = False
    words: str = ""
    is_failure: bool = False
    """It ended by itself, with an exit code that is not 0."""
    sent: Sent | None = None
    """The signal that ended it, or that it ended after; None where nobody listened, and where the text says enough."""

    def how(self, pid: int, own: Mapping[int, str]) -> str | Unknown:
        """The text, and from whom the signal came.

        Args:
            pid: Whose end it is.
            own: The roles of the server's processes, by PID.

        >>> Exit("killed by SIGKILL", sent=Sent(9, 0, 42, "bash", False)).how(7, {})
        'killed by SIGKILL from pid 42 (bash)'
        >>> Exit("exit code 0", sent=Sent(15, 0, 5, "python3", False)).how(7, {5: "APIServer"})
        "exit code 0, after SIGTERM from the server's own APIServer (pid 5)"
        """
        if self.sent is None or isinstance(self.text, Unknown):
            return self.text
        name = signal.Signals(self.sent.number).name
        told = "" if self.text.endswith(name) else f", after {name}"
        return f"{self.text}{told} from {self.sent.by(pid, own)}"


@dataclass(slots=True)
class _Watched:
    """What must be held while a process lives, to know later how it ended."""

    pidfd: int | None
    memory_events: Path | None
    oom_kills: int
    since_ns: int
    """Earlier signals were sent to another process of its PID."""
    zombie_status: int | None = None


@dataclass(slots=True)
class Exits:
    """Follows processes until they have ended.

    Args:
        log: The kernel's log; it is only read, from the moment of `open` on.
        senders: Who tells who has sent a signal; nobody where no probes are wanted.
    """

    log: KernelLog = field(default_factory=KernelLog)
    senders: SignalSenders | None = None
    open_pidfd: Callable[[int], int] = os.pidfd_open
    _times: EndTimes | None = None
    _watched: dict[int, _Watched] = field(default_factory=dict)
    _words: dict[int, str] = field(default_factory=dict)
    """The kernel's last line about a process, by PID."""
    _oom: set[int] = field(default_factory=set)

    def open(self) -> None:
        """Begin to listen to the kernel's log; where it may not be read, exits are told without it."""
        self.log.open()
        self._times = EndTimes()
        if self.senders is not None:
            self.senders.open()

    def close(self) -> None:
        """Let go of all that is held."""
        self.log.close()
        if self.senders is not None:
            self.senders.close()
        for pid in list(self._watched):
            self.forget(pid)
        if self._times is not None:
            self._times.close()
            self._times = None

    def watch(self, pid: int) -> None:
        """Follow a process from now on."""
        if pid in self._watched or len(self._watched) >= MOST_WATCHED:
            return
        try:
            pidfd = self.open_pidfd(pid)
        except OSError:  # it has just ended, or the limit of open files is reached
            pidfd = None
        if self._times is not None and pidfd is not None:
            self._times.watch(pidfd)
        events = cgroups.memory_events_of(pid)
        kills = 0 if events is None else cgroups.oom_kills(events) or 0
        self._watched[pid] = _Watched(pidfd, events, kills, time.monotonic_ns())

    def forget(self, pid: int) -> None:
        """Follow it no longer."""
        watched = self._watched.pop(pid, None)
        self._words.pop(pid, None)
        self._oom.discard(pid)
        if watched is not None and watched.pidfd is not None:
            if self._times is not None:
                self._times.forget(watched.pidfd)
            os.close(watched.pidfd)

    def ended_ns(self, pid: int) -> int | None:
        """When it ended, in ns of the monotonic clock; None while it runs, or where nobody could wait for it."""
        watched = self._watched.get(pid)
        return (
            None if self._times is None or watched is None or watched.pidfd is None else self._times.of(watched.pidfd)
        )

    def note_zombie(self, pid: int) -> None:
        """Keep the status that a zombie shows until its parent takes it."""
        watched, content = self._watched.get(pid), procfs.read_bytes(f"{procfs.PROC}/{pid}/stat")
        if watched is None or content is None:
            return
        fields = content[content.rfind(b")") + 2 :].split()
        # The kernel shows the status 0 to those who may not see it.
        if len(fields) > _STATUS_FIELD and fields[0] == b"Z" and (int(fields[_STATUS_FIELD]) or os.geteuid() == 0):
            watched.zombie_status = int(fields[_STATUS_FIELD])

    def read_signals(self) -> None:
        """Take in who has sent which, while the senders' names can be read."""
        if self.senders is not None:
            self.senders.read()

    def read_log(self) -> int:
        """Take in what the kernel has written, before newer lines push it out; how many lines these were."""
        messages = self.log.messages()
        for message in messages:
            if found := _NAMED.search(message):
                pid = int(found["oom"] or found["trap"] or found["xid"])
                self._words[pid] = shorten(message, _MOST_WORDS)
                if found["oom"]:
                    self._oom.add(pid)
        for pid in self._words.keys() - self._watched.keys():
            del self._words[pid]
            self._oom.discard(pid)
        return len(messages)

    def of(self, pid: int) -> Exit:
        """How a process that was followed has ended, as far as it is known by now."""
        watched = self._watched.get(pid)
        if watched is None:
            return Exit()
        status = watched.zombie_status
        if watched.pidfd is not None and (kept := _status_of(watched.pidfd)) is not None:
            status = kept
        killed = None if status is None else status & 0x7F
        words = self._words.get(pid, "")
        is_oom = pid in self._oom or (killed in (None, signal.SIGKILL) and self._has_group_lost_one(watched))
        if status is None:
            return Exit("killed for want of memory (OOM)" if is_oom else _NOT_KEPT, is_oom=is_oom, words=words)
        oom = " for want of memory (OOM)" if is_oom else ""
        is_killed = killed == signal.SIGKILL and not is_oom
        is_regular, sent = status == 0 or killed in _REGULAR, None if is_oom else self._sent(pid, status & 0x7F)
        is_failure = not killed and not is_regular
        return Exit(_status_text(status) + oom, is_regular, is_killed, is_oom, words, is_failure, sent)

    def _sent(self, pid: int, number: int) -> Sent | None:
        """The signal that killed it; of one that has exited by itself the last that told it to, shortly before."""
        if self.senders is None:
            return None
        since_ns = self._watched[pid].since_ns
        if number:
            return self.senders.of(pid, (number,), since_ns=since_ns)
        ended_ns = self.ended_ns(pid) or time.monotonic_ns()
        return self.senders.of(pid, ENDING, since_ns=max(since_ns, ended_ns - OBEYED_NS))

    @staticmethod
    def _has_group_lost_one(watched: _Watched) -> bool:
        kills = None if watched.memory_events is None else cgroups.oom_kills(watched.memory_events)
        return kills is not None and kills > watched.oom_kills


def how_it_ended(pid: int, log: KernelLog | None = None) -> str:
    """What can still be known of the end of a process that nobody has followed; empty where nothing is.

    A zombie keeps its exit status; of one that is gone only the kernel's log may tell: killed for want of memory, a
    fault of its own or of a GPU.
    """
    exits = Exits(log or KernelLog(open_from_start))
    exits.log.open()
    exits._watched[pid] = _Watched(None, None, 0, time.monotonic_ns())
    try:
        exits.note_zombie(pid)
        while exits.read_log():
            pass
        found = exits.of(pid)
    finally:
        exits.close()
    known = () if isinstance(found.text, Unknown) else (found.text,)
    return "; ".join((*known, *((f"the kernel's log: {found.words}",) if found.words else ())))


def _status_of(pidfd: int) -> int | None:
    """The exit status in the form of waitpid(2); None while the process runs, or where the kernel does not keep it."""
    request = bytearray(_INFO.pack(_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, request)
    except OSError:  # ENOTTY before Linux 6.13, ESRCH before 6.15
        return None
    mask, *_, status = _INFO.unpack(request)
    return status if mask & _EXIT else None


def _status_text(status: int) -> str:
    """In words.

    >>> _status_text(9), _status_text(0x8B), _status_text(256)
    ('killed by SIGKILL', 'killed by SIGSEGV', 'exit code 1')
    """
    number = status & 0x7F
    if not number:
        return f"exit code {status >> 8 & 0xFF}"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {number}"
