"""The container's CPU quota stops the server in mid-step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.advice import fewer_threads
from llmtop.analysis.rules.base import Unjudged, unjudged
from llmtop.analysis.rules.evidence import WINDOW_NS, known, says
from llmtop.analysis.rules.needs import lacks_threads
from llmtop.analysis.rules.scope import is_watched
from llmtop.analysis.rules.signals import Signal, slower
from llmtop.analysis.rules.thread_signals import drivers, held_off
from llmtop.analysis.series.rates import Increase
from llmtop.analysis.series.readings import counter_increase, counter_rate
from llmtop.analysis.server.configuration import one_of
from llmtop.analysis.threads.neighbours import neighbours
from llmtop.facts import ProcessFact
from llmtop.model import NS_PER_S, Finding, Severity, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.text import group_name

id = "cgroup-throttled"
summary = "The cgroup's CPU quota is used up: the kernel stops all of the server's threads for the rest of each period."
source = "Linux kernel, Documentation/admin-guide/cgroup-v2 (cpu.stat); vLLM reports of ITL x10 under a 6-core quota"

_PROCESS = TrackKind.PROCESS
_SEVERE = 0.1
"""Seconds throttled per second: from here on every tenth token is late."""


def check(trace: Trace) -> Iterator[Finding | Unjudged]:
    """Time throttled grows, and the server feels it: tokens come later, or its threads stand still."""
    harm = _harm(trace)
    if harm is None:
        yield from unjudged(id, lacks_threads(trace)) if is_watched(trace) else ()
        return
    processes = trace.tracks_of(_PROCESS)
    times = [counter_increase(trace, track.id, v.CGROUP_THROTTLED, WINDOW_NS) for track in processes]
    if times and all(isinstance(one, Unknown) for one in times):
        yield from unjudged(id, *(one for one in times if isinstance(one, Unknown)))
    for track, throttled in zip(processes, times, strict=True):
        if isinstance(throttled, Unknown) or throttled.amount <= 0:
            continue
        share = throttled.per_second / NS_PER_S
        shared = _shared_path(track)
        mates = neighbours(trace, shared) if shared else ()
        eats = f"; {mates[0].who} takes {mates[0].cores:.2g} cores of it" if mates else ""
        apart = f"move {mates[0].name} out of the group, or give it a quota of its own" if mates else ""
        yield Finding(
            rule=id,
            severity=Severity.ERROR if share >= _SEVERE else Severity.WARNING,
            subject=track.name,
            message=f"CPU quota exhausted: threads throttled {share:.2g} s per second{_of_group(track)}{eats}",
            evidence=(
                *_quota(trace, track.id, throttled),
                harm.text,
                *(f"in the same quota: {one.text} (/proc/PID/stat)" for one in mates[:_MATES]),
            ),
            action=one_of(apart, "raise the CPU limit", fewer_threads(trace)),
            next_command=_command(track),
            source=source,
            share=min(1.0, share),
        )


def throttled_share(trace: Trace) -> float:
    """Seconds throttled per second of the process whose group is throttled most, up to 1."""
    grown = (counter_increase(trace, one.id, v.CGROUP_THROTTLED, WINDOW_NS) for one in trace.tracks_of(_PROCESS))
    return max((min(1.0, one.per_second / NS_PER_S) for one in grown if not isinstance(one, Unknown)), default=0.0)


def _shared_path(track: Track) -> str:
    """The path of the group whose quota it is, as /proc/PID/cgroup has it; empty where there is none."""
    facts = (ProcessFact.CGROUP, ProcessFact.CGROUP_FOLDER, ProcessFact.CPU_QUOTA)
    path, folder, quota = (str(track.facts.get(fact, "")) for fact in facts)
    while path.strip("/") and not folder.endswith(path):
        path = path.rpartition("/")[0]
    return "" if quota in ("", "none") else path.rstrip("/")


_MATES = 3
"""Programs in the same quota that are named."""


def _command(track: Track) -> str:
    """Shows quota and throttling; the files' names differ between the versions of cgroups."""
    folder = track.facts.get(ProcessFact.CGROUP_FOLDER, "")
    if not isinstance(folder, str) or not folder:
        return f"cat /proc/{ids.pid(track.id)}/cgroup"
    return f"grep . {shlex.quote(folder)}/cpu.{{max,stat,cfs_quota_us}} 2>/dev/null"


def _of_group(track: Track) -> str:
    """Whose quota it is: " (docker 3f2a91b0c7d1, 2 cores)"."""
    group, quota = track.facts.get(ProcessFact.CGROUP, ""), track.facts.get(ProcessFact.CPU_QUOTA, "")
    known_parts = (group_name(group) if isinstance(group, str) else "", quota if isinstance(quota, str) else "")
    named = ", ".join(part for part in known_parts if part)
    return f" ({named})" if named else ""


def _harm(trace: Trace) -> Signal | None:
    """Later or fewer tokens; else a thread that is ready and does not run, which a throttled one is all the time."""
    if (late := slower(trace)) is not None:
        return late
    held = [wait for thread in drivers(trace) if (wait := held_off(trace, thread)) is not None]
    return max(held, key=lambda wait: wait.value, default=None)


def _quota(trace: Trace, process: TrackId, throttled: Increase) -> Iterator[str]:
    yield f"{says(trace, process, v.CGROUP_THROTTLED, throttled.amount)} in the last {throttled.seconds:.0f} s"
    periods = known(counter_rate(trace, process, v.CGROUP_PERIODS_THROTTLED, WINDOW_NS))
    if periods:
        yield says(trace, process, v.CGROUP_PERIODS_THROTTLED, periods, "/s", "periods throttled:")
