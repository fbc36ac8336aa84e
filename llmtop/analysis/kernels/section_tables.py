"""The tables and charts of a report's sections as their files describe them: NVIDIA's, and those that users write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.kernels.counting import not_counted
from llmtop.analysis.kernels.section_charts import section_parts
from llmtop.analysis.kernels.section_page import PagePart, PageRow, SectionPage
from llmtop.analysis.kernels.table import FAILED, kernels_of
from llmtop.model import Instances, Unknown

if TYPE_CHECKING:
    from llmtop.model import KernelDetails, Trace

SOURCE = "the report's own sections, with the labels of the tool"
_NUMA = (
    ("CPUs near the GPU", "numa__cpu_affinity"),
    ("NUMA node by CPU", "numa__id_cpu"),
    ("NUMA node by memory", "numa__id_memory"),
)
"""By GPU, as the section NumaAffinity has them."""
_GPUS = "numa__dev_display_name_all"


def section_tables(trace: Trace, launch: int) -> SectionPage | Unknown:
    """All of one launch; why there are none."""
    if (why := not_counted(trace)) is not None:
        return why
    kernels = kernels_of(trace)
    details = kernels.table.details
    if details is None:
        return Unknown("this capture has no sections")
    if kernels.has_failed(launch):
        return FAILED
    sections = (part for section in details.tables(launch) for part in section_parts(details, launch, section))
    parts = (*sections, *_numa(details, launch))
    return SectionPage(launch, parts, SOURCE) if parts else Unknown("this capture has no sections")


def _numa(details: KernelDetails, launch: int) -> Iterator[PagePart]:
    names = details.instances(launch, _GPUS)
    for i, gpu in enumerate(names.values if isinstance(names, Instances) else ()):
        told = ((label, metric, details.instances(launch, metric)) for label, metric in _NUMA)
        rows = tuple(
            PageRow(label, found.values[i], metric=metric)
            for label, metric, found in told
            if isinstance(found, Instances) and i < len(found.values)
        )
        yield PagePart(f"NUMA affinity of GPU {i}, {gpu}", rows)
