"""What makes a recording worth keeping: how it is written, and when it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.pages.triggers import Trigger, TriggerError, TriggerWatch, trigger
from llmtop.analysis.rules.registry import Diagnosis, diagnose
from llmtop.model import LIVE, NS_PER_S, Metric, Series, Trace, TrackId
from tests.live_traces import live_trace

SERVER = live_trace()


@pytest.mark.parametrize(
    ("text", "name", "limit", "is_above", "for_s"),
    [
        ("ttft_p99 > 1s for 10s", "ttft_p99", 1.0, True, 10),
        (" ttft_p99>500 ms for 2 min ", "ttft_p99", 0.5, True, 120),
        ("kv_usage > 90%", "kv_usage", 0.9, True, 0),
        ("kv_usage > 0.9", "kv_usage", 0.9, True, 0),
        ("gpu.sm < 5%", "gpu.sm", 5.0, False, 0),
        ("gpu.memory_used > 70GiB for 1h", "gpu.memory_used", 70 * 2**30, True, 3600),
        ("gpu.pcie_rx > 1.5GB/s", "gpu.pcie_rx", 1.5e9, True, 0),
        ("gpu.sm_clock < 1200 MHz", "gpu.sm_clock", 1200.0, False, 0),
        ("finding:kv-bound for 30s", "kv-bound", None, True, 30),
    ],
)
def test_it_is_written_as_people_say_it(text: str, name: str, limit: float | None, is_above: bool, for_s: int) -> None:
    assert trigger(text) == Trigger(text.strip(), name, limit, is_above, for_s * NS_PER_S)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no condition, as in"),
        ("ttft_p99", "is no condition"),
        ("ttft_p99 > 1s for ever", "is no condition"),
        ("ttft_p99 > -1s", "is no condition"),
        ("ttft_p99 > 1.2.3s", "'1.2.3' is no number"),
        ("kv_usage > 3GB", "it is in ratio, and may be given in ratio, %"),
        ("kv > 1", "no number 'kv', but output_tokens_per_s, prompt_tokens_per_s, running, waiting, kv_usage, "),
        ("ttft_p9 > 1", "no number 'ttft_p9': did you mean ttft_p99? There are output_tokens_per_s, "),
        ("kv > 1", ", gpu.power, gpu.power_limit, "),
        ("server.ttft > 1s", "no number 'server.ttft'"),
        ("endpoint.answer > 1", "no number 'endpoint.answer'"),
        ("finding:bad", "no rule 'bad', but allocation-churn, "),
        ("finding:bad", ", kv-bound, "),
        ("finding:\x1b[2J", "is no condition"),
        ("x" * 10_000 + " > 1", "there is no number"),
    ],
)
def test_what_is_no_condition_says_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(TriggerError) as caught:
        trigger(text)
    assert said in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("running > 1", True),
        ("running < 1", False),
        ("kv_usage > 1%", True),
        ("kv_usage > 100%", False),
        ("ttft_p99 > 1ms", True),
        ("ttft_p99 < 1ms", False),
        ("gpu.power > 1 W", True),
        ("gpu.power > 9000 W", False),
    ],
)
def test_it_holds_by_what_is_known_of_the_newest_moment(text: str, holds: bool) -> None:
    assert trigger(text).holds(SERVER) is holds


@pytest.mark.parametrize("text", ["running < 1e9", "ttft_p99 < 1h", "gpu.sm < 100%", "running > 0"])
def test_what_is_not_known_does_not_hold(text: str) -> None:
    assert not trigger(text.replace("1e9", "1000000")).holds(Trace(LIVE, end_ns=NS_PER_S))


def test_a_quantile_between_bounds_holds_where_both_are_beyond() -> None:
    """Of the scene TTFT p99 lies in one bucket of the server's: what lies within it is not known to be exceeded."""
    text = "ttft_p99 > {}ms"
    held = [limit for limit in (1, 100, 1_000, 2_600, 100_000) if trigger(text.format(limit)).holds(SERVER)]
    assert held == sorted(held)
    assert held[0] == 1
    assert 100_000 not in held


def test_a_finding_is_a_condition() -> None:
    rule = diagnose(SERVER).findings[0].rule
    assert trigger(f"finding:{rule}").holds(SERVER)
    assert not trigger("finding:process-gone").holds(SERVER)


HOST, LOAD = ids.HOST, v.HOST_LOAD


def loaded(second: int, value: float | None, track: TrackId = HOST, metric: Metric = LOAD) -> Trace:
    end_ns = second * NS_PER_S
    return Trace(
        LIVE, end_ns=end_ns, series={(track, metric.name): Series.of(track, metric, "test", [(end_ns, value)])}
    )


def test_it_fires_once_it_has_held_for_long_enough_without_a_break() -> None:
    watch = TriggerWatch(trigger("host.load > 4 for 3s"))
    loads = [5.0, 5.0, 5.0, 1.0, 5.0, 5.0, None, 5.0, 6.0, 7.0, 8.0, 1.0]
    fired = [second for second, load in enumerate(loads) if watch.fires(loaded(second, load))]
    assert fired == [10]


def test_findings_are_asked_for_less_often_and_hold_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = diagnose(SERVER).findings[0].rule
    asked: list[int] = []

    def counted(trace: Trace) -> Diagnosis:
        asked.append(trace.end_ns)
        return diagnose(SERVER)

    monkeypatch.setattr("llmtop.analysis.pages.triggers.diagnose", counted)
    watch = TriggerWatch(trigger(f"finding:{rule}"))
    fired = [watch.fires(replace(SERVER, end_ns=SERVER.end_ns + second * NS_PER_S)) for second in range(11)]
    assert all(fired)
    assert len(asked) == 3
