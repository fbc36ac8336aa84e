"""What a live source is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from llmtop.frozen import frozen

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.model import Engine, Mark, Source, Trace, Unknown, What

Clock = Callable[[], int]
"""Nanoseconds on the host's monotonic clock; passed in wherever time is read, so that tests hold it."""


@frozen
class DoctorCheck:
    """One line of `llmtop doctor`: what can be had here, or why not and the command that changes it."""

    what: str
    state: str | Unknown


class Probes(StrEnum):
    """How closely the kernel is asked about a server: what `--probes` says."""

    FULL = "full"
    """All that fits the budget."""
    LIGHT = "light"
    """What costs least: threads on and off the CPU, and counts of system calls; no stacks, no library calls."""
    OFF = "off"


@frozen
class Endpoint:
    """What the user said of where metrics are.

    Attributes:
        headers: What is sent with each request: a key.
        url: Where they are, as this machine sees it; empty where the server's own sockets tell.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    url: str = ""


DEFAULT_BUDGET = 0.01
"""Of one core, that probes may take (`--overhead-budget`)."""
LEAST_BUDGET = 0.001
"""Less pays for no look that tells anything: a window on library calls costs a millisecond."""


@frozen
class Aim:
    """What collectors of a server are told beside the server itself.

    Attributes:
        engines: The servers known: what tells roles, and whose metrics a page holds.
        find_urls: Where the metrics are by now; a server that is still starting has no port yet.
        endpoint: What the user said of the metrics endpoint.
        output: The newest lines, so many, of what a server has printed that llmtop has launched; None without one.
        probes: How closely the kernel is asked.
        budget: Share of one core that this may cost the server.
        environment: What a server that llmtop has launched was started with; None without one.
    """

    engines: Sequence[Engine]
    find_urls: Callable[[], Sequence[str]] | None = None
    endpoint: Endpoint = field(default_factory=Endpoint)
    output: Callable[[int], Sequence[str]] | None = None
    probes: Probes = Probes.FULL
    budget: float = DEFAULT_BUDGET
    environment: Mapping[str, str] | None = None

    def last_line(self) -> str:
        """The newest line of the output of a launched server; empty without one."""
        return next(iter(self.output(1)), "") if self.output is not None else ""


class Collector(Protocol):
    """One live source: GPUs, a process tree, a metrics endpoint.

    The session runs each collector on a thread of its own: `__enter__`, then `poll` every `period_s`, then
    `__exit__`. Everything that can fail for a while (a server that restarts, a GPU that is lost) is reported in
    the trace (`issues`, `missing`, None values) and recovers by itself; an exception from `poll` is a bug, which
    the session turns into an issue and survives.
    """

    name: str
    period_s: float
    """The least time between polls that makes sense for this source."""

    def missing(self) -> Unknown | None:
        """Why it cannot run here and what would change that; None if it can."""
        ...

    def __enter__(self) -> Self:
        """Take hold of what is polled: a library, a device, a connection."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it; leave nothing behind."""
        ...

    def poll(self) -> Trace:
        """What is new since the last poll, losses included."""
        ...


@runtime_checkable
class Owner(Protocol):
    """A collector that says what is its own to read: its reasons then stand wherever something of that is not known."""

    @property
    def owns(self) -> Source:
        """What it reads, and the lanes that it adds; the same for as long as it runs."""
        ...


@runtime_checkable
class Starting(Protocol):
    """A collector that takes a while until it looks: it compiles or attaches something, or waits for a first page."""

    @property
    def is_starting(self) -> bool:
        """Whether it has not looked yet and still may. Called from any thread."""
        ...


@runtime_checkable
class Prestarted(Protocol):
    """A collector that looks in a process of its own, which may start while llmtop itself is still loaded."""

    def prepare(self) -> None:
        """Start the process, without waiting for it; called once at most, before all else."""
        ...


@runtime_checkable
class Eager(Protocol):
    """A collector that at times has news sooner than its next poll is due."""

    @property
    def is_eager(self) -> bool:
        """Whether the next poll should follow soon: a first number has come, and a rate takes two."""
        ...


@runtime_checkable
class Resting(Protocol):
    """A collector whose next polls would at times find nothing: it looks more rarely than it could, or on demand."""

    @property
    def rests_until_ns(self) -> int:
        """The moment, on its clock, before which no poll is of use; `OnDemand.ask` ends that. Asked after a poll."""
        ...


@runtime_checkable
class EndReporter(Protocol):
    """A collector that sees how its server ends, which may come after its last poll."""

    def last_words(self) -> tuple[Mark, ...]:
        """What has happened since the last poll; asked for once, when another server has taken the place of its own."""
        ...


@runtime_checkable
class OnDemand(Protocol):
    """A collector that takes some things only while they are wanted, because they cost."""

    def ask(self, what: What, wanted: bool) -> None:
        """Begin or end to take `what`; what it does not know is for another collector. Called from any thread."""
        ...
