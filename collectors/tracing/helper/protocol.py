"""How a helper speaks to llmtop: a JSON object a line on standard output, until standard input ends.

What is in these objects is told in wire.py. The helpers of probes and of perf both speak so; this module is
theirs together.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, repeat
from typing import Protocol, TypeVar, Union

from ..wire import Looking, OtherTracer, Ready, Sample, Unavailable, Why
from . import system
from .system import UnavailableError

Message = Union[Ready, Unavailable, Looking, Sample]
"""What a helper may say."""

WAIT = "wait a second"
"""The remedy of what is only awaited."""
LOOK_LONGER = "a longer window holds more slices: llmtop snapshot --seconds 30"
"""The remedy of what is looked at in slices."""
PASSING = frozenset((WAIT, LOOK_LONGER))
"""Remedies for who looks at the time, and not at a recording."""


class StoppedError(Exception):
    """Nobody wants to know any more."""


class Link:
    """The line to llmtop. Standard output is for reports alone: what a library prints must not get in between."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def say(self, report: Message) -> None:
        """Send one line.

        Raises:
            StoppedError: Nobody reads any more.
        """
        try:
            self._file.write(json.dumps(report, separators=(",", ":")) + "\n")
            self._file.flush()
        except BrokenPipeError:
            raise StoppedError from None

    def wait(self, descriptors: Sequence[int] = (), seconds: float | None = None) -> list[int]:
        """Like select(2) for reading: which descriptors are ready; none after so many seconds.

        Raises:
            StoppedError: Standard input has ended.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready = select.select([0, *descriptors], [], [], left)[0]
            if 0 in ready and not os.read(0, 65536):
                raise StoppedError
            others = [descriptor for descriptor in ready if descriptor != 0]
            if others or left == 0:
                return others

    def ticks(self, *pauses: float) -> Iterator[None]:
        """Again and again after so many seconds, the last of them for good; at once where the work took longer.

        Raises:
            StoppedError: Standard input has ended.
        """
        due = time.monotonic()
        for pause in chain(pauses, repeat(pauses[-1])):
            due = max(due + pause, time.monotonic())
            self.wait(seconds=due - time.monotonic())
            yield


class Prober(Protocol):
    """Probes that are attached."""

    missing: dict[str, Why]
    """What cannot be had here, by part."""

    @property
    def processes(self) -> Collection[int]:
        """The processes looked at."""
        ...

    @property
    def knows_calls(self) -> bool:
        """Whether sleeps are told by system call."""
        ...


AnyProber = TypeVar("AnyProber", bound=Prober)


def attach(link: Link, start: Callable[[], AnyProber]) -> AnyProber:
    """Have probes attached, and say that they look.

    Raises:
        UnavailableError: They cannot be.
    """
    others = system.other_tracers()
    system.see_tracepoints()
    started = time.monotonic()
    prober = start()
    link.say(
        {
            "kind": "ready",
            "pid": os.getpid(),
            "processes": list(prober.processes),
            "seconds": round(time.monotonic() - started, 3),
            "others": [OtherTracer(*one) for one in others],
            "missing": prober.missing,
            "knows_calls": prober.knows_calls,
        }
    )
    return prober


def parser(name: str) -> argparse.ArgumentParser:
    """The options that llmtop gives to every helper."""
    options = argparse.ArgumentParser(prog=name)
    options.add_argument("pids", type=int, nargs="+")
    options.add_argument("--parent", type=int, default=0)
    options.add_argument("--interval", type=float, default=1.0)
    options.add_argument("--budget", type=float, default=0.01)
    options.add_argument("--stacks", action="store_true")
    options.add_argument("--light", action="store_true", help="what costs least: no stacks, no library calls")
    return options


def run(options: argparse.Namespace, look: Callable[[argparse.Namespace, Link], None]) -> int:
    """Look until told to stop, or until llmtop is gone; the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for llmtop, which tells us to stop
    if options.parent:
        system.die_with_parent(options.parent)
    link = Link()
    try:
        look(options, link)
    except UnavailableError as error:
        link.say({"kind": "unavailable", "reason": error.reason, "remedy": error.remedy})
        return 1
    except StoppedError:
        return 0
    return 0
