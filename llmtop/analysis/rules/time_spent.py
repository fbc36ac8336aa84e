"""Of a program that is no server: where the time of the thread goes that it runs, or waits, in."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop.analysis.commands import live as commands
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.thread_signals import ServerThread, says_spent, spent_text, threads
from llmtop.analysis.server.processes import parts, watched
from llmtop.model import Finding, Severity, Trace

id = "time-spent"
summary = "A program that is no server that llmtop knows: in what its main thread, or its busiest one, spends its time."
source = "Linux, schedstat and /proc; eBPF's sched_switch as root"

_MOSTLY = 0.5
"""Share of the time awake from which a thread is what the program does; else its main thread says what it waits for."""


def check(trace: Trace) -> Iterator[Finding]:
    """Nobody knows what such a program should do: this is information, and says nothing where a cause is found."""
    if not is_watched(trace) or watched(trace) != "program":
        return
    everyone = sorted(threads(trace), key=lambda one: -one.awake)
    if everyone:
        yield _finding(trace, everyone[0] if everyone[0].awake >= _MOSTLY else _main(trace, everyone), everyone[0])


def _main(trace: Trace, everyone: list[ServerThread]) -> ServerThread:
    """The first thread of the program's root; where its times are not known, the busiest of all."""
    root = next((part.pid for part in parts(trace) if part.is_root), None)
    return next((one for one in everyone if one.row.tid == root), everyone[0])


def _finding(trace: Trace, thread: ServerThread, busiest: ServerThread) -> Finding:
    is_awake = thread.awake >= _MOSTLY
    others = (busiest,) if busiest is not thread else ()
    return Finding(
        rule=id,
        severity=Severity.INFO,
        subject=thread.name,
        message=f"{thread.name} {'works' if is_awake else 'waits'}: {spent_text(thread)}",
        evidence=tuple(says_spent(trace, one) for one in (thread, *others)),
        action="see what it computes" if is_awake else "see where it waits, and for whom",
        next_command=(commands.profile if is_awake else commands.stacks)(trace, thread.row.pid),
        source=source,
        share=thread.awake if is_awake else thread.shares.blocked_total,
    )
