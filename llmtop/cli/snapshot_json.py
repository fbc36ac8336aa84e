"""`llmtop snapshot --json`: the contract `llmtop.snapshot/1`, described in docs/json-snapshot.md."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from llmtop import ids, whats
from llmtop import vocabulary as v
from llmtop.analysis.pages.correlate import Correlation, Correlations, correlations
from llmtop.analysis.pages.gpus import GpuProcess, gpu_processes
from llmtop.analysis.pages.header import header_dtype, model_of, own_cpu, probe_hits_per_s, version_of
from llmtop.analysis.roofline.efficiency import EfficiencyView, efficiency_view
from llmtop.analysis.roofline.live import live_view, mean_point
from llmtop.analysis.roofline.rates import dram_bytes_per_s
from llmtop.analysis.roofline.server import FROM_TOKENS, server_roofline
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.analysis.series.readings import (
    NO_TARGET,
    busy_metric,
    counter_rate,
    gpu_tracks,
    latest,
    mean,
    target_gpus,
    told_why_unseen,
    why_kind_missing,
)
from llmtop.analysis.server.configuration import Setting, configuration
from llmtop.analysis.server.liveness import liveness
from llmtop.analysis.server.objectives import JudgedObjective, judged
from llmtop.analysis.server.view import ServerNumber, ServerView, server_view
from llmtop.analysis.threads.garbage import GarbageCollection, garbage_collection
from llmtop.analysis.threads.idle_causes import IdleCauses, idle_causes
from llmtop.analysis.threads.neighbours import host, neighbours
from llmtop.analysis.threads.python_frames import is_python, join_python
from llmtop.analysis.threads.shares import Shares, ThreadRow, ThreadsView, threads_view
from llmtop.analysis.threads.syscalls import Syscall, SyscallsView, syscalls_view
from llmtop.analysis.views import Quality
from llmtop.cli.documents import document_or_why, fact, finding_document
from llmtop.facts import GpuFact
from llmtop.model import NS_PER_S, Missing, Stack, Trace, Track, TrackId, TrackKind, Unknown
from llmtop.vocabulary import PythonState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from llmtop.analysis.pages.budget_terms import BudgetGain, BudgetTerm
    from llmtop.analysis.pages.token_budget import TokenBudget
    from llmtop.analysis.series.histograms import Quantile
    from llmtop.analysis.views import RooflinePoint, RooflineView
    from llmtop.cli.documents import Json
    from llmtop.model import Metric, Quantity, Target, TargetProcess

SNAPSHOT_SCHEMA = "llmtop.snapshot/1"


def _cpu_until(trace: Trace, t_ns: int) -> float | Unknown:
    """CPU seconds that llmtop had used by then: what its start takes, most of it the compiler of the probes."""
    series = trace.get(ids.SELF, v.SELF_CPU)
    used = None if series is None else series.at(t_ns)
    return Unknown("it was not read by then") if used is None else round(used / NS_PER_S, 3)


def snapshot_document(trace: Trace, target: Target | None, seconds: float) -> dict[str, Json]:
    """One look as strict JSON, schema `llmtop.snapshot/1`: what is not known is an object that says why.

    Args:
        trace: What the collectors saw.
        target: The server, or None for the GPUs alone.
        seconds: The window that rates, shares and latencies are taken over.
    """
    window_ns = int(seconds * NS_PER_S)
    server, threads, syscalls = _of_server(trace, window_ns) if target is not None else (NO_TARGET,) * 3
    gpus = [track.id for track in target_gpus(trace, target)] if target else []
    tracks = gpu_tracks(trace)
    diagnosed = diagnose(trace)
    return {
        "schema": SNAPSHOT_SCHEMA,
        "host": _host(trace, target),
        "target": _target(trace, target, window_ns),
        "liveness": _liveness(trace) if target is not None else fact(NO_TARGET),
        "time": _time(trace),
        "window_s": seconds,
        "gpus": [_gpu(trace, track, window_ns) for track in tracks],
        "gpu_totals": _gpu_totals(trace, tracks, window_ns),
        "roofline": [point for track in tracks for point in _roofline_of(trace, target, track.id, gpus, window_ns)],
        "efficiency": _efficiency(efficiency_view(trace, target, window_ns)) if target else fact(NO_TARGET),
        "token_budget": _token_budget(trace, target, window_ns) if target else fact(NO_TARGET),
        "server": {} if isinstance(server, Unknown) else {key: _stat(stat) for key, stat in server.stats.items()},
        **_requests(trace, target, window_ns),
        "objectives": [_objective(one) for one in judged(trace, window_ns)] if target is not None else [],
        "connections": list(_connections(trace)),
        "threads": [] if isinstance(threads, Unknown) else [thread_of(trace, row, window_ns) for row in threads.rows],
        "syscalls": [] if isinstance(syscalls, Unknown) else _syscalls(syscalls),
        "stacks": [_stack(stack) for stack in join_python(_of_time(trace)).stacks],
        "python_stacks": [_python_stack(stack) for stack in trace.stacks if is_python(stack)],
        "idle_causes": [_idle_causes(gpu, idle_causes(trace, gpu, window_ns)) for gpu in gpus],
        "correlation": [_correlations(gpu, correlations(trace, gpu, window_ns)) for gpu in gpus],
        "verdict": _verdict(diagnosed),
        "findings": [finding_document(finding) for finding in diagnosed.findings],
        "missing": [missing.document for missing in _all_missing(trace, server, threads, syscalls)],
        "self": _self(trace, window_ns),
    }


def _time(trace: Trace) -> Json:
    """When the window ended, in UTC, as ISO 8601 has it."""
    if trace.origin.utc_ns is None:
        return fact(Unknown("the trace does not say when its clock read 0"))
    return datetime.fromtimestamp((trace.origin.utc_ns + trace.end_ns) / NS_PER_S, UTC).isoformat(
        timespec="milliseconds"
    )


def _of_server(
    trace: Trace, window_ns: int
) -> tuple[ServerView | Unknown, ThreadsView | Unknown, SyscallsView | Unknown]:
    server = server_view(trace, rate_window_ns=window_ns, latency_window_ns=window_ns)
    return server, threads_view(trace, window_ns), syscalls_view(trace, window_ns)


def _requests(trace: Trace, target: Target | None, window_ns: int) -> dict[str, Json]:
    if target is None:
        return dict.fromkeys(("requests", "batches", "steps", "counted_steps"), fact(NO_TARGET))
    # What GPUs without a server have none of is not loaded for them.
    from llmtop.cli.snapshot_requests import batches_document, requests_document
    from llmtop.cli.snapshot_steps import counted_steps_document, steps_document

    return {
        "requests": requests_document(trace, window_ns),
        "batches": batches_document(trace, target),
        "steps": steps_document(trace, window_ns),
        "counted_steps": counted_steps_document(trace, window_ns),
    }


def _self(trace: Trace, window_ns: int) -> dict[str, Json]:
    return {
        "cpu": fact(own_cpu(trace, window_ns)),
        "helpers_cpu": fact(own_cpu(trace, window_ns, v.SELF_HELPERS)),
        "start_cpu_s": fact(_cpu_until(trace, trace.end_ns - window_ns)),
        "rss_bytes": fact(latest(trace, ids.SELF, v.SELF_RSS)),
        "probes": fact(probe_hits_per_s(trace, window_ns)),
    }


def _roofline_of(
    trace: Trace, target: Target | None, gpu: TrackId, own: Sequence[TrackId], window_ns: int
) -> Iterable[Json]:
    view = _roofline(trace, target, gpu, mine=gpu in own)
    return _points(gpu, view, mean_point(trace, gpu, header_dtype(target), window_ns))


def _roofline(trace: Trace, target: Target | None, gpu: TrackId, *, mine: bool) -> RooflineView:
    """A GPU of the server's is led by the server's work, where the counters only bound it."""
    return server_roofline(trace, target, gpu) if mine else live_view(trace, gpu, header_dtype(target))


# -- the JSON document -----------------------------------------------------------------------------------------


def _host(trace: Trace, target: Target | None) -> dict[str, Json]:
    facts = {key: fact(value) for track in trace.tracks_of(TrackKind.HOST) for key, value in track.facts.items()}
    for key, metric in (("cpu_pressure_percent", v.HOST_CPU_PRESSURE), ("load_1min", v.HOST_LOAD)):
        is_read = trace.get(ids.HOST, metric) is not None
        facts[key] = fact(latest(trace, ids.HOST, metric) if is_read or target else NO_TARGET)
    if target is not None:
        facts["cpu_consumers"] = [
            {"name": one.name, "pids": list(one.pids), "cgroup": one.group, "cores": round(one.cores, 3)}
            for one in neighbours(trace)
        ]
        for key, metric in (("steal_percent", v.HOST_STEAL), ("cpu_in_use_cores", v.HOST_CPU)):
            facts[key] = fact(host(trace, metric))
    return facts


def _target(trace: Trace, target: Target | None, window_ns: int) -> Json:
    if target is None:
        return fact(NO_TARGET)
    return {
        "pid": target.pid,
        "root_pid": target.root_pid,
        "kind": target.kind,
        "version": fact(version_of(trace, target)),
        "model": fact(model_of(trace, target)),
        "dtype": fact(target.dtype),
        "ports": list(target.ports),
        "config": {str(feature): document_or_why(found, _setting) for feature, found in configuration(trace).items()},
        "processes": [_process(trace, one, window_ns) for one in target.processes],
    }


def _process(trace: Trace, one: TargetProcess, window_ns: int) -> dict[str, Json]:
    track = ids.process(one.pid)
    used = counter_rate(trace, track, v.PROCESS_CPU, window_ns)
    return {
        "pid": one.pid,
        "role": one.role,
        "name": one.name,
        "cpu_cores": fact(used if isinstance(used, Unknown) else used / NS_PER_S),
        "rss_bytes": fact(latest(trace, track, v.PROCESS_RSS)),
    }


def _setting(found: Setting) -> Json:
    return {"value": fact(found.value), "source": found.source}


def _liveness(trace: Trace) -> Json:
    """Whether the server lives, and what of it does not."""
    verdict = liveness(trace)
    return {
        "state": verdict.life.value,
        "is_serving": fact(verdict.serving),
        "faults": [
            {
                "rule": fault.rule,
                "state": fault.state,
                "severity": fault.severity.value,
                "subject": fault.subject,
                "message": fault.message,
                "is_whole": fault.is_whole,
                "since_s": round((trace.end_ns - fault.since_ns) / NS_PER_S, 1),
            }
            for fault in verdict.faults
        ],
    }


def _gpu_totals(trace: Trace, tracks: Sequence[Track], window_ns: int) -> dict[str, Json]:
    """Sums over all GPUs, means over the window; unknown where one GPU's part is."""
    means = {
        "power_w": [mean(trace, one.id, v.GPU_POWER, window_ns, at_least=1) for one in tracks],
        "memory_used_bytes": [latest(trace, one.id, v.GPU_MEMORY_USED) for one in tracks],
        "dram_bytes_per_s": [dram_bytes_per_s(trace, one.id, window_ns) for one in tracks],
    }
    shares = {
        "busy": [mean(trace, one.id, busy_metric(trace, one.id), window_ns, at_least=1) for one in tracks],
        "sm": [mean(trace, one.id, v.GPU_SM, window_ns, at_least=1) for one in tracks],
    }
    return {
        "count": len(tracks),
        **{key: fact(_sum(values, len(tracks))) for key, values in shares.items()},
        **{key: fact(_sum(values)) for key, values in means.items()},
    }


def _sum(values: Sequence[float | Unknown], divided_by: int = 1) -> float | Unknown:
    known = [value for value in values if not isinstance(value, Unknown)]
    if len(known) < len(values):
        return next(value for value in values if isinstance(value, Unknown))
    return sum(known) / divided_by if known else Unknown("no GPU is seen")


def _efficiency(view: EfficiencyView) -> dict[str, Json]:
    numbers = {
        "mfu": view.mfu,
        "mbu": view.mbu,
        "joules_per_token": view.joules_per_token,
        "phase": view.phase,
        "flops_share": view.flops_share,
        "dram_share": view.dram_share,
    }
    return {key: _quantity(number) for key, number in numbers.items()} | {"notes": list(view.notes)}


def _token_budget(trace: Trace, target: Target, window_ns: int) -> Json:
    # Imported here: with it comes all that gains are worked out from, and a look without a server has no use for it.
    from llmtop.analysis.pages.token_budget import token_budget

    return document_or_why(token_budget(trace, target, window_ns), budget_of)


def budget_of(budget: TokenBudget) -> dict[str, Json]:
    """The section "token_budget"."""
    return {
        "step_s": budget.step_s,
        "floor_s": budget.floor_s,
        "batch": budget.batch,
        "tokens_per_step": budget.tokens_per_step,
        "terms": [_budget_term(term) for term in budget.terms],
        "scaling_tax": document_or_why(budget.scaling_tax, lambda tax: {"at_least": tax[0], "at_most": tax[1]}),
        "gains": [_budget_gain(gain) for gain in budget.gains],
        "notes": list(budget.notes),
    }


def _budget_gain(gain: BudgetGain) -> dict[str, Json]:
    return {
        "part": gain.part,
        "change": gain.change,
        "at_least_s": gain.low,
        "at_most_s": gain.high,
        "how": gain.how,
        "source": gain.source,
    }


def _budget_term(term: BudgetTerm) -> dict[str, Json]:
    details: list[Json] = [{"what": words, "seconds": seconds} for words, seconds in term.details]
    return {
        "part": term.part,
        "seconds": term.seconds,
        "quality": term.quality,
        "source": term.source,
        "details": details,
    }


def _quantity(number: Quantity | Unknown) -> dict[str, Json]:
    if isinstance(number, Unknown):
        return {"value": fact(number), "unit": "", "source": ""}
    return {"value": fact(number.value), "unit": number.unit, "source": number.source}


def _gpu(trace: Trace, track: Track, window_ns: int) -> dict[str, Json]:
    def over_window(metric: Metric) -> Json:
        return fact(mean(trace, track.id, metric, window_ns, at_least=1))

    reasons = latest(trace, track.id, v.GPU_CLOCK_REASONS)
    return {
        "index": ids.gpu_index(track.id),
        "uuid": fact(track.facts.get(GpuFact.UUID, Unknown("the driver gives no UUID"))),
        "name": fact(track.facts.get(GpuFact.NAME, track.name)),
        "busy": over_window(busy_metric(trace, track.id)),
        "sm": over_window(v.GPU_SM),
        "dram": over_window(v.GPU_DRAM),
        "tensor": over_window(v.GPU_TENSOR),
        "occupancy": over_window(v.GPU_OCCUPANCY),
        "dram_bytes_per_s": fact(dram_bytes_per_s(trace, track.id, window_ns)),
        "memory_used_bytes": fact(latest(trace, track.id, v.GPU_MEMORY_USED)),
        "power_w": over_window(v.GPU_POWER),
        "sm_mhz": over_window(v.GPU_SM_CLOCK),
        "sm_mhz_true": over_window(v.GPU_SM_CLOCK_TRUE),
        "throttle": document_or_why(reasons, lambda known: list(v.clock_reasons(int(known)))),
        "processes": [_gpu_process(one) for one in gpu_processes(trace, track.id)],
    }


def _gpu_process(one: GpuProcess) -> dict[str, Json]:
    return {"pid": one.pid, "name": one.name, "memory_bytes": fact(one.memory)}


def _points(gpu: TrackId, view: RooflineView, mean: RooflinePoint | Unknown) -> Iterator[Json]:
    """The window's mean where it was measured, and the estimates: the work done, and the server's own."""
    measured = () if isinstance(mean, Unknown) else (mean,)
    stood_in = FROM_TOKENS if measured else ""
    for point in (*measured, *view.points):
        is_estimate = point.age_s == 0 and point.quality is Quality.ESTIMATE and point.label != stood_in
        if point in measured or is_estimate:
            yield {
                "gpu": ids.gpu_index(gpu),
                "label": point.label,
                "intensity": fact(point.intensity),
                "flops_per_s": fact(point.flops_per_s),
                "bytes_per_s": fact(point.bytes_per_s),
                "precision": point.precision,
                "source": point.source,
                "quality": point.quality.value,
            }


def _stat(stat: ServerNumber) -> dict[str, Json]:
    shown: dict[str, Json] = {"value": fact(stat.value), "unit": stat.unit, "source": stat.source}
    if stat.note:
        shown["note"] = stat.note
    if stat.mean is not None:
        shown["mean"] = fact(stat.mean)
    if stat.bounds is not None:
        shown |= _bounds(stat.bounds)
    return shown


def _bounds(bounds: Quantile) -> dict[str, Json]:
    """Between what a quantile lies, and whether only one side of that is known."""
    shown: dict[str, Json] = {**_sides(bounds)}
    flags = (("is_upper_bound", bounds.is_upper_bound), ("is_lower_bound", bounds.is_lower_bound))
    return shown | {key: True for key, is_so in flags if is_so}


def _sides(bounds: Quantile) -> dict[str, float]:
    """Its bounds; a side without one is left out."""
    return {key: side for key, side in (("low", bounds.low), ("high", bounds.high)) if math.isfinite(side)}


def _objective(one: JudgedObjective) -> dict[str, Json]:
    limits: dict[str, Json] = {"objective": one.objective.title, "limit_s": one.objective.limit_s}
    met = fact(one.is_met)
    if one.seen is None:
        return limits | {"is_met": met}
    high = one.seen.high if math.isfinite(one.seen.high) else None
    seen: dict[str, Json] = {"low_s": one.seen.low, "high_s": high, "observations": round(one.observations)}
    late: Json = None if one.late is None else {"at_least": one.late[0], "at_most": one.late[1]}
    return limits | {"is_met": met, **seen, "late": late, "source": one.source}


def _connections(trace: Trace) -> Iterator[Json]:
    for track in trace.tracks_of(TrackKind.ENDPOINT):
        values = {key: latest(trace, track.id, metric) for key, metric in _OF_CONNECTIONS.items()}
        if not isinstance(values["established"], Unknown):
            yield {"port": int(ids.port(track.id))} | {key: fact(value) for key, value in values.items()}


_OF_CONNECTIONS = {
    "established": v.ENDPOINT_CONNECTIONS,
    "unanswered": v.ENDPOINT_UNANSWERED,
    "longest_wait_s": v.ENDPOINT_LONGEST_WAIT,
}


def thread_of(trace: Trace, row: ThreadRow, window_ns: int) -> dict[str, Json]:
    """One of the section "threads": shares of the window."""
    shares = row.shares
    named: dict[str, Json] = {"pid": row.pid, "tid": row.tid, "name": row.name, "role": row.role}
    if not isinstance(shares, Shares):
        return named | {"on_cpu": fact(shares), "run_queue": fact(shares), "blocked": {}}
    blocked = {cause: round(share, 4) for cause, share in shares.blocked}
    named |= {"on_cpu": round(shares.on_cpu, 4), "run_queue": round(shares.run_queue, 4), "blocked": blocked}
    parts = (("polling", shares.polling), ("in_cuda_sync", shares.in_cuda_sync))
    named |= {key: round(share, 4) for key, share in parts if share is not None}
    garbage = garbage_collection(trace, row.track, window_ns)
    if isinstance(garbage, GarbageCollection):
        named |= {"collecting": round(garbage.share, 4), "collections_per_s": round(garbage.per_s, 2)}
    return named | {"is_blocked_exact": shares.are_causes_exact}


def _idle_causes(gpu: TrackId, causes: IdleCauses | Unknown) -> dict[str, Json]:
    numbered: dict[str, Json] = {"gpu": ids.gpu_index(gpu)}
    if isinstance(causes, Unknown):
        return numbered | {"unknown": causes.reason, "remedy": causes.remedy}
    numbered |= {
        key: round(value, 4)
        for key, value in (
            ("idle_share", causes.idle_share),
            ("idle_s", causes.idle_s),
            ("observed_s", causes.observed_s),
            ("covered_s", causes.covered_s),
        )
    }
    rows: list[Json] = [
        {
            "cause": row.cause,
            "thread": row.thread,
            "idle_s": round(row.idle_s, 4),
            "of_idle": round(row.of_idle, 4),
            "of_window": round(row.of_window, 4),
        }
        for row in causes.rows
    ]
    return numbered | {
        "quality": "estimate",
        "sources": list(causes.sources),
        "notes": list(causes.notes),
        "causes": rows,
    }


def _correlations(gpu: TrackId, found: Correlations | Unknown) -> dict[str, Json]:
    numbered: dict[str, Json] = {"gpu": ids.gpu_index(gpu)}
    if isinstance(found, Unknown):
        return numbered | {"unknown": found.reason, "remedy": found.remedy}
    series = [_correlation(title, one) for title, one in found.rows]
    return numbered | {"against": found.against, "step_s": found.step_s, "series": series}


def _correlation(title: str, one: Correlation | Unknown) -> dict[str, Json]:
    if isinstance(one, Unknown):
        return {"title": title, "unknown": one.reason, "remedy": one.remedy}
    return {
        "title": title,
        "source": one.source,
        "lag_ns": one.lag_ns,
        "lag_resolution_ns": one.resolution_ns,
        "r": round(one.r, 4),
        "p": one.p,
        "n_effective": round(one.n_effective, 1),
        "samples": one.samples,
        "is_significant": one.is_significant,
        "is_control": one.is_control,
    }


def _stack(stack: Stack) -> dict[str, Json]:
    return {"frames": list(stack.frames), "weight_ns": stack.weight, "state": stack.state}


def _of_time(trace: Trace) -> list[Stack]:
    """Stacks whose weight is a time, and the looks at interpreters that it is divided by."""
    return [stack for stack in trace.stacks if stack.unit == "ns" or is_python(stack)]


def _python_stack(stack: Stack) -> dict[str, Json]:
    return {
        "pid": ids.pid(stack.track),
        "tid": ids.tid(stack.track),
        "frames": list(stack.frames),
        "looks": round(stack.weight),
        "state": PythonState(stack.state).of_thread,
    }


def _verdict(diagnosed: Diagnosis) -> dict[str, Json]:
    unjudged: list[Json] = [
        {"rule": one.rule, "reason": one.why.reason, "remedy": one.why.remedy} for one in diagnosed.unjudged
    ]
    seen: Json = None if diagnosed.seen_s is None else round(diagnosed.seen_s, 3)
    return {
        "text": diagnosed.verdict,
        "is_clear": diagnosed.is_clear,
        "seen_s": seen,
        "window_s": diagnosed.window_s,
        "unjudged": unjudged,
    }


def _why_no_stacks(trace: Trace) -> Unknown:
    return told_why_unseen(trace, whats.STACKS) or Unknown(
        "no stack was sampled in the window", "look for longer: --seconds 5"
    )


def _syscalls(view: SyscallsView) -> list[Json]:
    return [_syscall(call, view.observed_s) for call in view.calls]


def _syscall(call: Syscall, observed_s: float) -> dict[str, Json]:
    shown: dict[str, Json] = {
        "name": call.name,
        "count": call.count,
        "observed_s": round(observed_s, 3),
        "per_second": round(call.per_second, 3),
        "errors": fact(call.errors),
        "total_ns": fact(call.total_ns),
    }
    for name, found in (("p50_ns", call.p50), ("p99_ns", call.p99)):
        shown[name] = fact(found if isinstance(found, Unknown) else _value_of(found, "ns"))
        if not isinstance(found, Unknown):
            shown |= {f"{name.removesuffix('_ns')}_{key}_ns": side for key, side in _sides(found).items()}
    return shown


def _value_of(found: Quantile, unit: str) -> float | Unknown:
    return Unknown(f"{found.text(unit)}: the buckets tell no more") if found.value is None else found.value


def _all_missing(
    trace: Trace, server: ServerView | Unknown, threads: ThreadsView | Unknown, syscalls: SyscallsView | Unknown
) -> Iterator[Missing]:
    """What collectors listed, then the whole sections that are empty, then collectors that failed."""
    yield from trace.missing
    if not gpu_tracks(trace):
        yield Missing(whats.GPUS, why_kind_missing(trace, TrackKind.GPU))
    if isinstance(server, Unknown):
        yield Missing(whats.kind(TrackKind.SERVER), server)
    if isinstance(threads, Unknown):
        yield Missing(whats.THREADS, threads)
    if isinstance(syscalls, Unknown):
        yield Missing(whats.SYSCALLS, syscalls)
    if isinstance(threads, Unknown) or not gpu_tracks(trace):
        why = threads if isinstance(threads, Unknown) else why_kind_missing(trace, TrackKind.GPU)
        yield Missing(whats.IDLE_CAUSES, why)
        yield Missing(whats.CORRELATION, why)
    if not trace.stacks:
        yield Missing(whats.STACKS, _why_no_stacks(trace))
    for issue in trace.issues:
        if (failed := whats.of_fault(issue.code)) is not None:
            yield Missing(failed, Unknown(issue.message))
