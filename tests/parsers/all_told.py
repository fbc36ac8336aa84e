"""All that a parser tells of a file, as text that can be read and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from llmtop.model import KernelCodes, KernelTable, Trace, Unknown
from tests.whole import whole


def all_told(trace: Trace) -> str:
    """All that is told, also what is read only when it is asked for: tracks and issues follow from that too."""
    spans = {**trace.spans, **trace.more_spans}
    read = whole(**spans, stacks=trace.stacks, series=trace.series)
    others = replace(named(trace), spans={}, more_spans={}, stacks=(), series={})
    launches = [] if trace.kernels is None else _launches(trace.kernels)
    return f"{whole(trace=others, launches=launches)}\n{read}"


def named(trace: Trace) -> Trace:
    """Without the folder, which is another one each time."""
    return replace(trace, origin=replace(trace.origin, path=Path(trace.origin.path).name))


def _launches(kernels: KernelTable) -> list[object]:
    """All that is held of the first launch and of the last one."""
    details = kernels.details
    if details is None:
        return []
    return [
        {
            "metrics": (metrics := details.metrics(i)),
            "units": {metric: details.unit(metric) for metric in metrics},
            "instances": {metric: details.instances(i, metric) for metric in (*metrics, "no such metric")},
            "rules": details.rules(i),
            "ranges": details.ranges(i),
            "sections": details.sections(i),
            "tables": details.tables(i),
            "code": None if kernels.codes is None else _code(kernels.codes, i),
        }
        for i in {0, len(kernels) - 1}
    ]


def _code(codes: KernelCodes, i: int) -> object:
    """The instructions of a launch, what they have, and the sources that its report holds."""
    code = codes.code(i)
    if isinstance(code, Unknown):
        return {"unknown": code}
    values = {metric: codes.values(i, metric) for metric in sorted(codes.metrics(i))}
    return {"instructions": code, "values": values, "sources": {file: codes.source(i, file) for file in code.files}}
