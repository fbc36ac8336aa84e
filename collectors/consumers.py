"""Who else takes this machine's CPUs: processes outside the server, time stolen by the hypervisor, interrupts.

One read of /proc/PID/stat for each process of the machine. It is done every ten seconds while nothing queues for a CPU,
every two when something does, and never so often that it takes more than `MAX_SHARE` of a core.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from llmtop import ids, procfs
from llmtop import vocabulary as v
from llmtop.facts import NeighbourFact
from llmtop.frozen import frozen
from llmtop.model import LIVE, NS_PER_S, Metric, Reading, Source, Target, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.text import clean, group_name, redact

if TYPE_CHECKING:
    from types import TracebackType

    from llmtop.collectors.base import Aim, Clock, Collector

CALM_NS = 10 * NS_PER_S
"""How often all processes of the machine are looked at while nobody waits for a CPU."""
CROWDED_NS = 2 * NS_PER_S
"""And while somebody does."""
FIRST_NS = NS_PER_S
"""From the first look to the second: rates need two."""
MAX_SHARE = 0.001
"""Of one core. 500 processes take 7 ms: once in 7 s."""
SHOWN = 16
"""Neighbours that are told of, those that take most first."""
LEAST_CORES = 0.02
"""Of a core: what takes less is nobody's neighbour."""
_CROWDED_PERCENT = 2.0
"""PSI "some": tasks waited for a CPU in this share of the last ten seconds."""
_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|node|bash|sh)[\d.]*\Z")
_COMM_BYTES = 15
"""What Linux keeps of a name (TASK_COMM_LEN, proc_pid_comm(5))."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_STAT = "/proc/PID/stat"


class _CpuSeen(NamedTuple):
    """What a process has used by now, in clock ticks; `children` is what its ended children had used."""

    start: int
    parent: int
    ticks: int
    children: int
    name: str


@frozen
class _Look:
    """All processes at one moment, and the machine's own sums in ticks."""

    t_ns: int
    processes: Mapping[int, _CpuSeen]
    machine: Mapping[str, int]


class ConsumersCollector:
    """Watches the processes that are not the server's nor llmtop's own.

    Args:
        target: The server: it and all its descendants are left out.
        cpu_clock: Processor time of this thread in ns: on a crowded machine a look takes long and costs no more.
    """

    name = "consumers"
    owns = Source(
        name,
        (TrackKind.NEIGHBOUR,),
        families=("neighbour.",),
        metrics=(v.HOST_CPU, v.HOST_CPU_UNSEEN, v.HOST_STEAL, v.HOST_INTERRUPTS),
    )
    period_s = 0.5

    def __init__(
        self,
        target: Target,
        proc: Path = procfs.PROC,
        clock: Clock = time.monotonic_ns,
        cpu_clock: Clock = time.thread_time_ns,
    ) -> None:
        self._cpu_clock = cpu_clock
        self._proc = proc
        self._clock = clock
        self._server = {target.root_pid, *(one.pid for one in target.processes)}
        self._last: _Look | None = None
        self._next_ns = 0
        self._shown: frozenset[TrackId] = frozenset()

    def missing(self) -> Unknown | None:
        if procfs.read_bytes(f"{self._proc}/stat") is None:
            return Unknown("/proc/stat cannot be read", "mount it: mount -t proc proc /proc")
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass  # nothing is held between polls

    @property
    def rests_until_ns(self) -> int:
        return self._next_ns

    def poll(self) -> Trace:
        start = self._clock()
        if start < self._next_ns:
            return Trace(LIVE, start, start)
        cpu_ns = self._cpu_clock()
        look = _Look(start, dict(_processes(self._proc)), _machine(self._proc))
        before, self._last = self._last, look
        took_ns = self._cpu_clock() - cpu_ns
        usual_ns = FIRST_NS if before is None else CROWDED_NS if _is_crowded(self._proc) else CALM_NS
        self._next_ns = start + max(usual_ns, int(took_ns / MAX_SHARE))
        return self._told(before, look) if before is not None else Trace(LIVE, start, start)

    def _told(self, before: _Look, look: _Look) -> Trace:
        seconds = (look.t_ns - before.t_ns) / NS_PER_S
        cores = {pid: ticks * _TICK_S / seconds for pid, ticks in _grown(before.processes, look.processes).items()}
        ours = set(_descendants(look.processes, {*self._server, os.getpid()}))
        others = sorted(
            (pid for pid in cores if pid not in ours and cores[pid] >= LEAST_CORES), key=lambda p: -cores[p]
        )
        tracks: dict[TrackId, Track] = {
            ids.neighbour(pid): self._track(pid, look.processes[pid]) for pid in others[:SHOWN]
        }
        readings = [
            Reading(ids.neighbour(pid), v.NEIGHBOUR_CPU, look.t_ns, cores[pid], _STAT) for pid in others[:SHOWN]
        ]
        gone, self._shown = self._shown - tracks.keys(), frozenset(tracks)
        sums = _shares(before.machine, look.machine, seconds, sum(cores.values()))
        readings += [Reading(ids.HOST, metric, look.t_ns, value, "/proc/stat") for metric, value in sums]
        now = self._clock()
        return Trace(LIVE, look.t_ns, now, tracks=tracks, readings=tuple(readings), gone=tuple(gone))

    def _called(self, pid: int, name: str) -> str:
        if len(name.encode("utf-8", "surrogateescape")) >= _COMM_BYTES:
            return _whole(name, procfs.arguments(pid, self._proc))
        if not _INTERPRETER.match(name):
            return name
        return f"{name} {_script(procfs.arguments(pid, self._proc))}".rstrip()

    def _track(self, pid: int, seen: _CpuSeen) -> Track:
        path = _group(procfs.read_text(f"{self._proc}/{pid}/cgroup") or "")
        name = clean(redact(self._called(pid, seen.name)))
        return Track(
            ids.neighbour(pid),
            TrackKind.NEIGHBOUR,
            name,
            facts={
                NeighbourFact.PID: pid,
                NeighbourFact.CGROUP: clean(group_name(path)),
                NeighbourFact.CGROUP_PATH: clean(path),
            },
        )


def _whole(name: str, arguments: Sequence[str]) -> str:
    """A name that Linux has cut, as the title or the program's path has it; the rest of a command line may be secret.

    >>> _whole("VLLM::EngineCor", ["VLLM::EngineCore_DP1"]), _whole("a-very-long-pro", ["/opt/a-very-long-program"])
    ('VLLM::EngineCore_DP1', 'a-very-long-program')
    >>> _whole("pt_main_thread_", ["python3", "train.py"])
    'pt_main_thread_'
    """
    title = (arguments[0] if arguments else "").partition(" ")[0]
    return next((one for one in (title, title.rpartition("/")[2]) if one.startswith(name)), name)


def _script(arguments: Sequence[str]) -> str:
    """What an interpreter runs, without what it is told, which may be secret.

    >>> _script(["python3", "-u", "/srv/train.py", "--key=x"]), _script(["python", "-m", "http.server", "80"])
    ('train.py', 'http.server')
    >>> _script(["bash", "-c", "curl -H 'key: x'"]), _script(["bash", "/srv/backup.sh"])
    ('', 'backup.sh')
    """
    rest = list(arguments[1:])
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag == "-c":
            return ""
    return rest[0].rpartition("/")[2] if rest else ""


def _group(memberships: str) -> str:
    """The path of a process's cgroup: that of its CPU time, else of the unified hierarchy, or of the first it is in."""
    lines = [line.split(":", 2) for line in memberships.splitlines() if line.count(":") >= 2]
    lines.sort(key=lambda line: "cpu" in line[1].split(","))
    return next((path for _, _, path in reversed(lines) if path.strip("/")), "")


def _processes(proc: Path) -> Iterator[tuple[int, _CpuSeen]]:
    for pid in procfs.pids(proc):
        content = procfs.read_bytes(f"{proc}/{pid}/stat")
        if content is None:
            continue  # it has ended
        end = content.rfind(b")")
        fields = content[end + 2 :].split(None, 20)
        try:
            user, system, ended_user, ended_system = map(int, fields[11:15])
            parent, start = int(fields[1]), int(fields[19])
        except (IndexError, ValueError):
            continue
        name = content[content.find(b"(") + 1 : end].decode("utf-8", "surrogateescape")
        yield pid, _CpuSeen(start, parent, user + system, ended_user + ended_system, name)


def _machine(proc: Path) -> dict[str, int]:
    """The first line of /proc/stat (proc_stat(5)): ticks of all CPUs together since the boot."""
    line = (procfs.read_bytes(f"{proc}/stat") or b"").split(b"\n", 1)[0].split()
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    return dict(zip(names, map(int, line[1:9]), strict=False))


def _grown(before: Mapping[int, _CpuSeen], now: Mapping[int, _CpuSeen]) -> dict[int, int]:
    """Ticks used in between by process; what children used that came and went unseen counts as their parent's."""
    ended: dict[int, int] = {}
    for pid, old in before.items():
        if _has_ended(pid, before, now):
            heir = old.parent
            while heir in before and _has_ended(heir, before, now):
                heir = before[heir].parent  # it has ended too: whoever waited for it has its children's time as well
            ended[heir] = ended.get(heir, 0) + old.ticks + old.children
    grown, unseen = {}, {}
    for pid, seen in now.items():
        old_one = before.get(pid)
        is_new = old_one is None or old_one.start != seen.start
        old = _CpuSeen(seen.start, seen.parent, 0, 0, "") if is_new or old_one is None else old_one
        grown[pid] = seen.ticks - old.ticks
        unseen[pid] = seen.children - old.children - ended.pop(pid, 0)
    # An orphan's time goes to whoever adopted it (init, a subreaper), and not to the one that was looked for above.
    adopted = sum(ended.values()) - sum(min(0, ticks) for ticks in unseen.values())
    for pid, ticks in sorted(unseen.items(), key=lambda item: -item[1]):
        inherited = min(adopted, max(0, ticks))
        adopted -= inherited
        grown[pid] += max(0, ticks) - inherited
    return grown


def _has_ended(pid: int, before: Mapping[int, _CpuSeen], now: Mapping[int, _CpuSeen]) -> bool:
    return pid not in now or now[pid].start != before[pid].start


def _descendants(processes: Mapping[int, _CpuSeen], roots: set[int]) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for pid, seen in processes.items():
        children.setdefault(seen.parent, []).append(pid)
    waiting, known = list(roots), set(roots)
    while waiting:
        pid = waiting.pop()
        yield pid
        fresh = [child for child in children.get(pid, ()) if child not in known]
        known.update(fresh)
        waiting += fresh


def _shares(
    before: Mapping[str, int], now: Mapping[str, int], seconds: float, visible: float
) -> Iterator[tuple[Metric, float]]:
    """Of all CPUs' time: stolen, in interrupts (%), in use (cores), and in use by no process that is seen (cores)."""
    grown = {name: max(0, value - before.get(name, 0)) for name, value in now.items()}
    total = sum(grown.values())
    if not total:
        return
    if "steal" in grown:
        yield v.HOST_STEAL, 100 * grown["steal"] / total
    interrupts = grown.get("irq", 0) + grown.get("softirq", 0)
    yield v.HOST_INTERRUPTS, 100 * interrupts / total
    programs = sum(grown.get(name, 0) for name in ("user", "nice", "system")) * _TICK_S / seconds
    yield v.HOST_CPU, programs + interrupts * _TICK_S / seconds
    yield v.HOST_CPU_UNSEEN, max(0.0, programs - visible)


def _is_crowded(proc: Path) -> bool:
    """Whether tasks queue for CPUs: by the pressure, or by how many are runnable where there is none."""
    content = procfs.read_text(f"{proc}/pressure/cpu")
    if content is not None and content.startswith("some avg10="):
        return float(content[11:].split(None, 1)[0]) >= _CROWDED_PERCENT
    runnable = (procfs.read_text(f"{proc}/loadavg") or "0 0 0 0/0").split()[3].partition("/")[0]
    return int(runnable) > (os.cpu_count() or 1)


def collector(target: Target, aim: Aim) -> Collector:
    """For the registry."""
    return ConsumersCollector(target)
