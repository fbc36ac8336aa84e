"""What stands above all panes: the server, its GPUs, what it does, and what llmtop itself takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.gpus.models import short_gpu_name
from llmtop.analysis.rules.signals import is_awaited, is_starting
from llmtop.analysis.series.readings import NO_TARGET, counter_rate, latest, target_gpus, why_no_gpu
from llmtop.analysis.server.liveness import Life, liveness
from llmtop.analysis.server.objectives import JudgedObjective, judged_now
from llmtop.analysis.server.view import ServerView, server_load
from llmtop.facts import GpuFact, ServerFact
from llmtop.frozen import frozen
from llmtop.model import NS_PER_S, PLAIN_PROCESS, Fact, Trace, TrackKind, Unknown, UnknownKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from llmtop.model import Metric, Target

SELF_WINDOW_NS = 10 * NS_PER_S
"""In which llmtop's own cost is the mean."""


@frozen
class Header:
    """What stands above all panes.

    Attributes:
        others: How many processes the server has besides `pid`.
        gpus: ("H100 80GB HBM3", 2): the model of the server's GPUs and their number; Unknown without a GPU, None while
            nobody has looked yet.
        gpus_hung: How many of them hang.
        gpus_lost: How many of them do not answer for another reason.
        self_cpu: llmtop's own CPU use, as a share of one core (0 to 1).
        probe_hits: How often a probe in the kernel ran, a second; 0 where none is attached.
        probes: "light" or "off" where the user has asked for fewer.
        is_starting: The server lives and has not answered yet: it loads, compiles, or captures graphs.
        is_awaited: Its first answer is, for too short a time to say more.
    """

    title: str
    model: Fact
    dtype: Fact
    pid: int | None
    others: int
    gpus: tuple[str, int] | Unknown | None
    server: ServerView | Unknown
    self_cpu: float | Unknown
    self_rss: float | Unknown
    probe_hits: float | Unknown = 0.0
    probes: str = ""
    gpus_hung: int = 0
    gpus_lost: int = 0
    is_starting: bool = False
    is_awaited: bool = False
    objectives: tuple[tuple[str, bool], ...] = ()
    """"TTFT" and "ITL", as far as the last minute, and its seconds, tell whether all that was promised was kept."""


def header(trace: Trace, target: Target | None) -> Header:
    """The header's facts; without a target only GPUs and llmtop's own cost are known."""
    why_silent = [trace.why_missing(whats.track(gpu.id)) for gpu in target_gpus(trace, target)]
    hung = [why for why in why_silent if why is not None and why.kind is UnknownKind.HUNG]
    # Of a program that is no known server nobody knows what it loads.
    is_server = target is not None and target.kind != PLAIN_PROCESS and liveness(trace).life is Life.ALIVE
    return Header(
        title=_title(trace, target) if target else "GPUs",
        model=model_of(trace, target),
        dtype=target.dtype if target else NO_TARGET,
        pid=target.root_pid if target else None,
        others=max(0, len(trace.tracks_of(TrackKind.PROCESS)) - 1) if target else 0,
        gpus=_gpu_summary(trace, target),
        server=server_load(trace) if target else NO_TARGET,
        self_cpu=own_cpu(trace),
        self_rss=latest(trace, ids.SELF, v.SELF_RSS),
        probe_hits=probe_hits_per_s(trace, SELF_WINDOW_NS),
        probes=_probes(trace),
        gpus_hung=len(hung),
        gpus_lost=len([why for why in why_silent if why is not None]) - len(hung),
        is_starting=is_server and is_starting(trace),
        is_awaited=is_server and is_awaited(trace),
        objectives=tuple(_kept(judged_now(trace))) if target else (),
    )


def _probes(trace: Trace) -> str:
    """How closely the kernel is asked, where that is not as closely as it could be."""
    sources = trace.sources.of_metric(v.SELF_PROBE_HITS.name)
    modes = (whats.State.LIGHT, whats.State.OFF)
    said = (mode for mode in modes if trace.why_missing(*(whats.state(one.name, mode) for one in sources)))
    return next(said, "")


def _kept(verdicts: Iterable[JudgedObjective]) -> Iterator[tuple[str, bool]]:
    """One that is missed is known though others are not."""
    by_name: dict[str, list[bool | Unknown]] = {}
    for one in verdicts:
        by_name.setdefault(one.objective.latency, []).append(one.is_met)
    for name, several in by_name.items():
        if False in several or all(one is True for one in several):
            yield name, False not in several


def model_of(trace: Trace, target: Target | None) -> Fact:
    """The model's name: from the command line, or else what the server's own metrics say."""
    if target is None:
        return NO_TARGET
    if not isinstance(target.model, Unknown):
        return target.model
    facts = (track.facts.get(ServerFact.MODEL, target.model) for track in trace.tracks_of(TrackKind.SERVER))
    return next((fact for fact in facts if not isinstance(fact, Unknown)), target.model)


def version_of(trace: Trace, target: Target | None) -> Fact:
    """The server's version, as it says it over HTTP."""
    if target is None:
        return NO_TARGET
    told = (track.facts.get(ServerFact.VERSION) for track in trace.tracks_of(TrackKind.SERVER))
    return next((version for version in told if version is not None), Unknown("the server does not tell its version"))


def _title(trace: Trace, target: Target) -> str:
    """The server with its version: what is known of it, and what is amiss, depends on that."""
    version = version_of(trace, target)
    return target.title if isinstance(version, Unknown) else f"{target.title} {version}"


def own_cpu(trace: Trace, window_ns: int = SELF_WINDOW_NS, part: Metric = v.SELF_CPU) -> float | Unknown:
    """CPU time of llmtop itself per second, or of a part of it, as a share of one core."""
    used = counter_rate(trace, ids.SELF, part, window_ns)
    return used if isinstance(used, Unknown) else used / NS_PER_S


def header_dtype(target: Target | None) -> Fact:
    """The dtype that the roofline is drawn for."""
    return target.dtype if target else NO_TARGET


def _gpu_summary(trace: Trace, target: Target | None) -> tuple[str, int] | Unknown | None:
    tracks = target_gpus(trace, target)
    if not tracks:
        return why_no_gpu(trace)
    name = tracks[0].facts.get(GpuFact.NAME, tracks[0].name)
    return short_gpu_name(str(name if not isinstance(name, Unknown) else tracks[0].name)), len(tracks)


def probe_hits_per_s(trace: Trace, window_ns: int) -> float | Unknown:
    """How often a probe ran in a second; truly 0 where none was ever attached."""
    return (
        0.0
        if trace.get(ids.SELF, v.SELF_PROBE_HITS) is None
        else counter_rate(trace, ids.SELF, v.SELF_PROBE_HITS, window_ns)
    )
