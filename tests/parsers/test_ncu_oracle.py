"""Our reading of a report against NVIDIA's own reader, value by value."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from llmtop.model import Instances, Unknown
from llmtop.parsers.ncu_rep.details import plain_message
from llmtop.parsers.registry import load
from llmtop.text import clean
from tests.parsers.forked import in_a_child
from tests.parsers.sample_reports import content, different_ncu_reports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from llmtop.model import KernelDetails, KernelTable, Value

ncu_report = pytest.importorskip("ncu_report", reason="needs NVIDIA's reader: pip install ncu-report")

MANY_KERNELS = 2
"""Of longer reports every kernel's launch is compared, and all metrics of so many."""
OUR_UNITS = {"1": "wavefront", "byte": "bytes", "hz": "Hz", "sectors": "sector", "branches": "branch"}
ODD_UNITS = re.compile(
    # NVIDIA's reader guesses these from a part of the name ("branch", "mem", "inst", "spilling") and is off.
    r"pcsamp_warps_issue_stalled|icc_requests|imc_requests|register_spilling_mem|lts2xbar_bytes|sectors_global_excessive"
    r"|^memory_l1_|threads_uniform\.pct|average_warp_latency_issue_stalled|^breakdown:|op_[df](add|mul|fma)_pred_on\.sum"
    # Of these it says "inst" of the first metric that it is asked for, and "thread" after others.
    r"|op_[dfh](add|mul|fma)_pred_on_x\d"
)


@dataclass(frozen=True)
class Pair:
    """One report, read by both."""

    kernels: KernelTable
    actions: list[Any]

    @property
    def details(self) -> KernelDetails:
        assert self.kernels.details is not None
        return self.kernels.details

    def rows(self) -> range:
        return range(0, len(self.kernels), -(-len(self.kernels) // MANY_KERNELS))


def read_both(path: Path, folder: Path) -> Pair:
    plain = folder / "report.ncu-rep"
    plain.write_bytes(content(path))
    kernels = load(path).kernels
    assert kernels is not None
    context = ncu_report.load_report(str(plain))
    return Pair(kernels, [action for i in range(context.num_ranges()) for action in context.range_by_idx(i)])


@pytest.mark.parametrize("path", different_ncu_reports(), ids=lambda path: path.name)
def test_a_report_is_read_as_nvidias_reader_does(path: Path, tmp_path: Path) -> None:
    in_a_child(lambda: all_is_the_same(read_both(path, tmp_path)))


def all_is_the_same(pair: Pair) -> None:
    every_launch_is_the_same(pair)
    every_scalar_metric_is_equal(pair)
    claimed_units_are_the_same(pair)
    rule_results_are_the_same(pair)
    sections_are_the_same(pair)
    nvtx_ranges_are_the_same(pair)
    every_instance_is_equal(pair)


def scalars(action: Any) -> Iterator[tuple[str, Any]]:
    """Metrics that have a value of their own."""
    for name in action.metric_names():
        metric = action.metric_by_name(name)
        if metric.has_value():
            yield name, metric


def same(ours: Value, theirs: Value) -> bool:
    return ours == (clean(theirs) if isinstance(theirs, str) else theirs)


def every_launch_is_the_same(pair: Pair) -> None:
    kernels = pair.kernels
    assert len(kernels) == len(pair.actions)
    for i, action in enumerate(pair.actions):
        assert kernels.name(i) == clean(action.name(ncu_report.IAction.NameBase_DEMANGLED))
        assert kernels.functions[kernels.name_id[i]] == clean(action.name(ncu_report.IAction.NameBase_FUNCTION))
        columns: dict[str, Sequence[float]] = {
            **{f"launch__grid_dim_{axis}": column for axis, column in zip("xyz", kernels.grid, strict=True)},
            **{f"launch__block_dim_{axis}": column for axis, column in zip("xyz", kernels.block, strict=True)},
            "launch__stream_id": kernels.stream,
            "device__attribute_device_index": kernels.device,
            "gpu__time_duration.sum": kernels.duration_ns,
        }
        # Old versions store the launch as metrics too only with the section LaunchStats.
        theirs = {name: metric.as_double() for name in columns if (metric := action.metric_by_name(name))}
        assert {name: columns[name][i] for name in theirs} == pytest.approx(theirs, rel=0, abs=0, nan_ok=True)
        assert len(theirs) >= 2


def every_scalar_metric_is_equal(pair: Pair) -> None:
    for i in pair.rows():
        theirs = {name: metric.value() for name, metric in scalars(pair.actions[i])}
        ours = pair.details.metrics(i)
        numbers = {name: value for name, value in theirs.items() if isinstance(value, str) or math.isfinite(value)}
        different = {name: (ours.get(name), value) for name, value in numbers.items() if not equal(ours, name, value)}
        assert not different
        assert set(ours) == set(numbers)


def equal(ours: Any, name: str, theirs: Value) -> bool:
    return name in ours and same(ours[name], theirs)


def claimed_units_are_the_same(pair: Pair) -> None:
    ours = pair.details.metrics(0)
    compared = 0
    for name, metric in scalars(pair.actions[0]):
        unit = metric.unit()
        counted, slash, per = unit.partition("/")
        expected = OUR_UNITS.get(counted, counted) + slash + per
        if name in ours and unit and pair.details.unit(name) and not ODD_UNITS.search(name):
            assert pair.details.unit(name) == expected, name
            compared += 1
    assert compared >= 20


def rule_results_are_the_same(pair: Pair) -> None:
    severity_by_type = {0: "ok", 1: "ok", 2: "optimization", 3: "warning", 4: "error"}
    kind_by_type = {1: "local", 2: "global"}
    for i in pair.rows():
        theirs = pair.actions[i].rule_results_as_dicts()
        ours = pair.details.rules(i)
        # NVIDIA's reader gives one result per message of a rule, ours one per rule.
        names = dict.fromkeys((rule["rule_identifier"], rule["name"], rule["section_identifier"]) for rule in theirs)
        assert [(rule.id, rule.name, rule.section) for rule in ours] == list(names)
        assert [message for rule in ours for message in rule.messages] == [
            (severity_by_type[rule["rule_message"]["type"]], plain_message(rule["rule_message"]["message"]))
            for rule in theirs
            if rule["rule_message"]["message"]
        ]
        assert [title for rule in ours for title in rule.titles] == [
            rule["rule_message"]["title"] for rule in theirs if rule["rule_message"]["message"]
        ]
        assert [focus for rule in ours for focus in rule.focus] == [
            (focus["name"], focus["value"]) for rule in theirs for focus in rule.get("focus_metrics", ())
        ]
        assert [speedup for rule in ours for speedup in rule.speedups] == [
            (kind_by_type[estimate["type"]], estimate["speedup"])
            for rule in theirs
            if (estimate := rule.get("speedup_estimation"))
        ]


def sections_are_the_same(pair: Pair) -> None:
    for i in pair.rows():
        assert sorted(pair.details.sections(i)) == sorted(s.identifier() for s in pair.actions[i].sections())


def nvtx_ranges_are_the_same(pair: Pair) -> None:
    for i, action in enumerate(pair.actions):
        state = action.nvtx_state()
        domains = [state.domain_by_id(domain) for domain in state.domains()] if state else []
        assert list(pair.details.ranges(i)) == [name for domain in domains for name in domain.push_pop_ranges()]


def every_instance_is_equal(pair: Pair) -> None:
    compared = 0
    for i in pair.rows():
        for name in pair.actions[i].metric_names():
            metric = pair.actions[i].metric_by_name(name)
            ours = pair.details.instances(i, name)
            if not (count := metric.num_instances()):
                assert isinstance(ours, Unknown), name
                continue
            assert isinstance(ours, Instances), name
            assert ours.values == tuple(metric.value(k) for k in range(count)), name
            keys = metric.correlation_ids() if metric.has_correlation_ids() else None
            assert ours.keys == (tuple(keys.value(k) for k in range(count)) if keys else ()), name
            compared += count
    assert compared > 500
