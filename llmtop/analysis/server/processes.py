"""Parts of the server that have ended, are stopped, or hang in the kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.rates import increase
from llmtop.analysis.series.readings import FRESH_NS, since_ns
from llmtop.analysis.server.ending import KILLED_NS, OBEYED_NS, ended_by_server, is_ending
from llmtop.analysis.server.fault import Fault, for_s
from llmtop.analysis.server.tokens import moved_ns
from llmtop.analysis.threads.shares import API_ROLES
from llmtop.facts import EndedFact, ProcessFact, SignalSender
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, PLAIN_ROLE, TrackKind, Unknown
from llmtop.vocabulary import ProcessState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.model import Series, Trace, Track

GONE, STOPPED, HUNG = "process-gone", "process-stopped", "process-hung"
TRACED_NS = NS_PER_S // 2
"""A debugger that only looks (py-spy, strace) holds a process for milliseconds: two polls see it so."""
TAKEN_ALONG_NS = 60 * NS_PER_S
"""An API server that has lost its engine answers what it can and ends within seconds."""
_ONE_LOOK_NS = NS_PER_S // 4
"""Within one look at all processes their order tells nothing."""
HUNG_NS = 5 * NS_PER_S
"""State D for so long without a moment on a CPU: reads of weights take turns with their copies, and progress."""
_RESTS = 0.01
"""Of a core."""
_AGAIN = "start it again: llmtop follows it to its new PID"
_WHO_KILLED = f"its log says whether it was told to end (vLLM: shutdown triggered) or lost its engine; {_AGAIN}"
_NUMBERS = re.compile(r"[\d_]+$")
_ENGINES = ("enginecore", "engine", "scheduler")
_WORDS = {
    ProcessState.STOPPED: ("stopped", "state T"),
    ProcessState.TRACED: ("held by a debugger", "state t"),
    ProcessState.FROZEN: ("frozen", "its cgroup is frozen"),
}
_RESUME = {
    ProcessState.STOPPED: "let it go on: kill -CONT {pid}; Ctrl+Z at its terminal or a kill -STOP holds it",
    ProcessState.TRACED: "end the debugger that holds it (gdb, strace): TracerPid below is its process",
    ProcessState.FROZEN: "let it go on: docker unpause, or write 0 to its cgroup.freeze (v1: THAWED to freezer.state)",
}


@frozen
class ServerPart:
    """A process that makes up the server, and lives."""

    track: Track
    pid: int
    role: str
    is_root: bool

    @property
    def name(self) -> str:
        """What people call it."""
        return f"{self.role} (pid {self.pid})"

    @property
    def is_front(self) -> bool:
        """It takes and answers requests, and drives no GPU."""
        return is_front(self.role)


def parts(trace: Trace) -> tuple[ServerPart, ...]:
    """The living processes that make up the server."""
    found = []
    for track in trace.tracks_of(TrackKind.PROCESS):
        if track.facts.get(ProcessFact.IS_PART) == 1:
            pid = ids.pid(track.id)
            found.append(
                ServerPart(
                    track, pid, str(track.facts.get(ProcessFact.ROLE, "")), track.facts.get(ProcessFact.ROOT) == pid
                )
            )
    return tuple(found)


def watched(trace: Trace) -> str:
    """What is watched, in a word: "server", or "program" where neither its processes nor its metrics are a server's."""
    if trace.tracks_of(TrackKind.SERVER):
        return "server"
    ended = root_end(trace)
    roots = {part.role for part in parts(trace) if part.is_root} | {ended.name if ended is not None else ""}
    return "program" if PLAIN_ROLE in roots else "server"


def is_front(role: str) -> bool:
    """Whether a process of this role takes requests and drives no GPU."""
    return any(name in role.lower() for name in API_ROLES)


def is_worker(role: str) -> bool:
    """Whether a process of this role takes a model's steps for an engine that is another process."""
    return "worker" in role.lower() and not is_front(role)


def process_faults(trace: Trace) -> tuple[Fault, ...]:
    """All of them, the gravest first: what is gone, then what is held, then what hangs."""
    living = parts(trace)
    return (*_gone(trace, living), *_held(trace, living), *_hung(trace, living))


# Gone


def root_end(trace: Trace) -> Track | None:
    """The end of the server's root, which is the server's own; None while it lives."""
    return next((one for one in _ended(trace) if one.facts.get(EndedFact.PID) == one.facts.get(EndedFact.ROOT)), None)


def _ended(trace: Trace) -> list[Track]:
    return [track for track in trace.tracks_of(TrackKind.ENDED) if _ended_ns(track) <= trace.end_ns]


def _gone(trace: Trace, living: tuple[ServerPart, ...]) -> Iterator[Fault]:
    ended = _ended(trace)
    if (root := root_end(trace)) is not None:
        yield _server_gone(trace, root, ended, living)
        return
    missed = [track for track in ended if not _is_replaced(trace, track, living) and not _is_surplus(track, living)]
    told = [track for track in missed if track.facts.get(EndedFact.IS_REGULAR) or ended_by_server(trace, track)]
    if told and is_ending(trace):
        missed = [track for track in missed if track not in told]
    missed = [track for track in missed if trace.end_ns - _ended_ns(track) > _patience_ns(track, told)]
    by_role: dict[str, list[Track]] = {}
    for track in missed:
        by_role.setdefault(_kind(track.name), []).append(track)
    for several in by_role.values():
        yield _part_gone(trace, several, living)


def _patience_ns(ended: Track, told: list[Track]) -> int:
    """How long an end may be the first sign of the whole server's, which is on its way."""
    return OBEYED_NS if ended in told else KILLED_NS if ended.facts.get(EndedFact.IS_KILLED) else -1


def _server_gone(trace: Trace, root: Track, ended: list[Track], living: tuple[ServerPart, ...]) -> Fault:
    since, how = _ended_ns(root), root.facts.get(EndedFact.HOW, "")
    first = _taken_along_by(trace, root, ended)
    is_told = bool(root.facts.get(EndedFact.IS_REGULAR)) and first is None
    killed = next((track for track in ended if _may_be_its_own(track)), None) if is_told else None
    said = "" if isinstance(how, Unknown) else f": {how}"
    took = "" if first is None else f", after {first.name} (pid {first.facts.get(EndedFact.PID)}): {_in_words(first)}"
    if killed is not None:
        pid = killed.facts.get(EndedFact.PID)
        took = f"; {killed.name} (pid {pid}) was killed then, by the {watched(trace)}'s own end or before it"
    who = f"{root.name}, pid {root.facts.get(EndedFact.PID)}"
    others = [track for track in ended if track is not root][-3:]
    left = f"still there: {', '.join(part.name for part in living)} (/proc)" if living else ""
    return Fault(
        GONE,
        _state(first or root, watched(trace).upper(), "ENDED" if is_told else "DEAD"),
        root.name,
        f"the {watched(trace)} has exited{said}, {for_s(since, trace.end_ns)} ago ({who}){took}",
        (*_says_end(trace, root), *(line for one in others for line in _says_end(trace, one)), *filter(None, [left])),
        ((_WHO_KILLED if killed else _AGAIN) if is_told else _what_to_do(first or root, watched(trace)))
        + _left(trace, since, living),
        _log_of(first or root),
        since,
    )


def _left(trace: Trace, since_ns: int, living: tuple[ServerPart, ...]) -> str:
    """What to do about parts that outlive their server: not just those that take a moment longer to end."""
    if not living or trace.end_ns - since_ns <= OBEYED_NS:
        return ""
    it_holds = "it may hold" if len(living) == 1 else "they may hold"
    return f"; end what is left of it before, {it_holds} GPU memory: kill {' '.join(str(one.pid) for one in living)}"


def _may_be_its_own(ended: Track) -> bool:
    """Whether it was killed, and nobody has seen by whom."""
    is_by_process = ended.facts.get(EndedFact.SENDER) in (SignalSender.OWN, SignalSender.OUTSIDE)
    return bool(ended.facts.get(EndedFact.IS_KILLED)) and not is_by_process


def _taken_along_by(trace: Trace, root: Track, ended: list[Track]) -> Track | None:
    """The part whose death came first, where the server ended because of it: in order, and with exit code 0, often."""
    deaths = [
        track
        for track in ended
        if track is not root
        and _is_before(track, root)
        and not track.facts.get(EndedFact.IS_REGULAR)
        and not ended_by_server(trace, track)
        and not isinstance(track.facts.get(EndedFact.HOW), Unknown)
    ]
    return min(deaths, key=_ended_ns, default=None)


def _is_before(part: Track, root: Track) -> bool:
    """Whether a part's death came before the server's end, shortly.

    Of two that one look has found over, what the kernel killed for want of memory was first, and so was what died under
    a server that then ended with an exit code of its own, which is not 0. What somebody else killed was first if it
    ended first.
    """
    ahead_ns = _ended_ns(root) - _ended_ns(part)
    if ahead_ns > _ONE_LOOK_NS:
        return ahead_ns <= TAKEN_ALONG_NS
    was_shot = part.facts.get(EndedFact.SENDER) == SignalSender.OUTSIDE and ahead_ns > 0
    is_grave = was_shot or part.facts.get(EndedFact.IS_OOM) or root.facts.get(EndedFact.IS_FAILURE)
    return ahead_ns >= -_ONE_LOOK_NS and bool(is_grave)


def _part_gone(trace: Trace, tracks: list[Track], living: tuple[ServerPart, ...]) -> Fault:
    first = tracks[0]
    since, how = _ended_ns(first), first.facts.get(EndedFact.HOW, "")
    others = f" and {len(tracks) - 1} more" if len(tracks) > 1 else ""
    said = "" if isinstance(how, Unknown) else f": {how}"
    alive = ", ".join(part.name for part in living[:3]) or "nothing else"
    zombie = ", a zombie" if first.facts.get(EndedFact.IS_ZOMBIE) else ""
    return Fault(
        GONE,
        _state(first, _who(first.name), "DEAD"),
        first.name,
        f"{first.name} (pid {first.facts.get(EndedFact.PID)}){others} is dead{zombie}{said}, "
        f"{_when(trace, first)}; {alive} still runs and can serve nothing without it",
        tuple(line for track in tracks[:3] for line in _says_end(trace, track)),
        _what_to_do(first, watched(trace)),
        _log_of(first),
        since,
        is_whole=not is_front(first.name) or not any(part.is_front for part in living),
    )


def _is_replaced(trace: Trace, ended: Track, living: tuple[ServerPart, ...]) -> bool:
    """Another process of the same role was first seen after its end."""
    starts = (
        series.times[0]
        for part in living
        if part.role == ended.name and (series := trace.get(part.track.id, v.PROCESS_STATE)) is not None and len(series)
    )
    return any(start > _ended_ns(ended) for start in starts)


def _is_surplus(ended: Track, living: tuple[ServerPart, ...]) -> bool:
    """It ended as it was told to, and others of its kind go on: a pool that shrinks."""
    is_regular = bool(ended.facts.get(EndedFact.IS_REGULAR))
    return is_regular and any(_kind(part.role) == _kind(ended.name) for part in living)


def _says_end(trace: Trace, track: Track) -> tuple[str, ...]:
    who = f"{track.name} (pid {track.facts.get(EndedFact.PID)})"
    sources = "/proc, pidfd, signal_generate" if track.facts.get(EndedFact.SENDER) else "/proc, pidfd"
    lines = [f"{who} ended {_when(trace, track)}, {_in_words(track)} ({sources})"]
    if track.facts.get(EndedFact.IS_ZOMBIE):
        parent = track.facts.get(EndedFact.PARENT)
        lines.append(f"it is a zombie: its parent (pid {parent}) has not noticed (/proc/PID/stat)")
    if words := track.facts.get(EndedFact.WORDS):
        lines.append(f"{words} (kernel log)")
    if error := track.facts.get(EndedFact.LOG_ERROR):
        lines.append(f"its log ends with: {error}")
    return tuple(lines)


def _when(trace: Trace, track: Track) -> str:
    ago = f"{for_s(_ended_ns(track), trace.end_ns)} ago"
    return f"at least {ago}, before llmtop came" if track.facts.get(EndedFact.WAS_OVER) else ago


def _in_words(track: Track) -> str:
    how = track.facts.get(EndedFact.HOW)
    return "how is not known" if isinstance(how, Unknown) or not how else str(how)


def _what_to_do(track: Track, what: str) -> str:
    if track.facts.get(EndedFact.IS_OOM):
        return "give it more memory (the container's limit, the machine), or a smaller CPU swap space and fewer workers"
    words = str(track.facts.get(EndedFact.WORDS, ""))
    if "Xid" in words:
        return f"restart the {what}; the GPU's fault (XID) is in the event log: e"
    if track.facts.get(EndedFact.SENDER) == SignalSender.OUTSIDE:
        return "find out why it was killed: by whom is said above; then start it again"
    if error := track.facts.get(EndedFact.LOG_ERROR):
        return f"mend this and restart: {error}"
    end = track.facts.get(EndedFact.LOG_END)
    if isinstance(end, Unknown):
        return f"restart the {what}; {end.reason}, which hid why it ended: {end.remedy}"
    if end is not None:
        wrote = f"its log names no error and ends with: {end}" if end else "it wrote nothing that says why it ended"
        return f"restart the {what}; {wrote}"
    return f"restart the {what}; its log says why it ended"


def _log_of(track: Track) -> str:
    if command := track.facts.get(EndedFact.LOG_COMMAND):
        return str(command)
    pid = track.facts.get(EndedFact.PID)
    return f"sudo dmesg -T | grep -iE 'oom|killed process|segfault|xid|pid.?{pid}' | tail"


def _ended_ns(track: Track) -> int:
    at = track.facts.get(EndedFact.ENDED_NS, 0)
    return int(at) if isinstance(at, int | float) else 0


def _kind(role: str) -> str:
    """A role without the number of its rank: all workers are of one kind."""
    return _NUMBERS.sub("", role)


def _who(role: str) -> str:
    return "ENGINE" if any(name in role.lower() for name in _ENGINES) else role.upper()


def _state(track: Track, who: str, what: str) -> str:
    return f"{who} {'KILLED: OUT OF MEMORY' if track.facts.get(EndedFact.IS_OOM) else what}"


# Stopped, traced, frozen


def _held(trace: Trace, living: tuple[ServerPart, ...]) -> Iterator[Fault]:
    by_state: dict[ProcessState, list[tuple[ServerPart, int]]] = {}
    for part in living:
        series = trace.get(part.track.id, v.PROCESS_STATE)
        held = None if series is None else _held_since(series, trace.end_ns)
        if held is not None:
            by_state.setdefault(held[0], []).append((part, held[1]))
    for state, several in by_state.items():
        yield _held_fault(trace, state, several, living)


def _held_since(series: Series, now_ns: int) -> tuple[ProcessState, int] | None:
    """In what a process is held, and since when; None when it is not, or nobody has looked lately."""
    if series.last is None or now_ns - (series.last_t_ns or 0) > FRESH_NS or series.last not in _WORDS:
        return None
    state = ProcessState(int(series.last))
    since = since_ns(series)
    is_sure = state is not ProcessState.TRACED or (series.last_t_ns or 0) - since >= TRACED_NS
    return (state, since) if is_sure else None


def _for(trace: Trace, part: ServerPart, since_ns: int) -> str:
    """How long; of what was so at the first look nobody knows since when."""
    series, words = trace.get(part.track.id, v.PROCESS_STATE), for_s(since_ns, trace.end_ns)
    return f"at least {words}" if series is not None and len(series) and series.times[0] == since_ns else words


def _held_fault(
    trace: Trace, state: ProcessState, several: list[tuple[ServerPart, int]], living: tuple[ServerPart, ...]
) -> Fault:
    word, letter = _WORDS[state]
    first, since = next(((part, t) for part, t in several if not part.is_front), several[0])
    # What the container holds is held with its root.
    is_all = len(several) == len(living) or (state is ProcessState.FROZEN and any(part.is_root for part, _ in several))
    names = ", ".join(part.name for part, _ in several[:3]) + (" ..." if len(several) > 3 else "")
    whole = watched(trace)
    who = f"the {whole}" if is_all else names
    verb = "is" if is_all or len(several) == 1 else "are"
    return Fault(
        STOPPED,
        f"{whole.upper() if is_all else _who(first.role)} {'FROZEN' if state is ProcessState.FROZEN else 'STOPPED'}",
        first.role,
        f"{who} {verb} {word}, for {_for(trace, first, since)}: nothing that it does goes on",
        tuple(f"{part.name}: {letter} for {_for(trace, part, t)} (/proc/PID/stat)" for part, t in several[:4]),
        _RESUME[state].format(pid=" ".join(str(part.pid) for part, _ in several)),
        f"grep -E 'Name|State|TracerPid' /proc/{first.pid}/status",
        since,
        is_whole=is_all or not first.is_front,
    )


# Hung in the kernel


def _hung(trace: Trace, living: tuple[ServerPart, ...]) -> Iterator[Fault]:
    for part in living:
        states, cpu = trace.get(part.track.id, v.PROCESS_STATE), trace.get(part.track.id, v.PROCESS_CPU)
        if states is None or states.last != ProcessState.UNINTERRUPTIBLE or cpu is None:
            continue
        since = max(since_ns(states), moved_ns(trace) or 0)  # what makes tokens does not hang
        used = increase(cpu, HUNG_NS, trace.end_ns)
        is_fresh = trace.end_ns - (states.last_t_ns or 0) <= FRESH_NS
        if not is_fresh or (states.last_t_ns or 0) - since < HUNG_NS or isinstance(used, Unknown):
            continue
        if used.per_second <= _RESTS * NS_PER_S:
            yield Fault(
                HUNG,
                f"{_who(part.role)} HUNG",
                part.role,
                f"{part.name} hangs in the kernel for {for_s(since, trace.end_ns)}: no signal reaches it",
                (
                    f"{part.name}: state D for {for_s(since, trace.end_ns)} (/proc/PID/stat)",
                    f"on a CPU {used.per_second / NS_PER_S:.1%} of the last {HUNG_NS // NS_PER_S} s (/proc/PID/stat)",
                ),
                "see what it waits for: a disk, NFS or the GPU's driver; the kernel's log names hung tasks",
                f"sudo cat /proc/{part.pid}/stack; sudo dmesg -T | grep -iE 'hung|nfs|i/o error|nvrm|xid' | tail",
                since,
            )
