"""Where the time of a program goes that is no server."""

from __future__ import annotations

import pytest

from llmtop.analysis.rules import time_spent
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Finding, Severity
from tests.analysis.test_plain_programs import ENGINE, PROGRAM, SERVED
from tests.analysis.verdict_scenes import Scene, Thread


def said(scene: Scene) -> list[Finding]:
    return [one for one in diagnose(scene.trace()).findings if one.rule == time_spent.id]


LOCKED = PROGRAM.but(threads=(Thread("main", on_cpu=0.004, run_queue=0.002, asleep_in="futex"),))


@pytest.mark.parametrize(("probed", "how"), [(True, "measured at each sleep"), (False, "sampled")])
def test_a_lock_that_is_waited_for_all_the_time_gets_a_word(probed: bool, how: str) -> None:
    (finding,) = said(LOCKED.but(probed=probed))
    assert (finding.severity, finding.subject, finding.message) == (Severity.INFO, "main", "main waits: 99 % futex")
    (line,) = finding.evidence
    assert f"causes {how}" in line
    assert finding.action == "see where it waits, and for whom"
    assert "7" in finding.next_command


@pytest.mark.parametrize(("on_cpu", "told"), [(0.5, "main/pool works: "), (0.48, "main waits: 99 % futex")])
def test_the_thread_that_computes_is_told_of_rather_than_the_one_that_waits_for_it(on_cpu: float, told: str) -> None:
    pool = Thread("main", 7, 8, "pool", on_cpu=on_cpu)
    (finding,) = said(LOCKED.but(threads=(*LOCKED.threads, pool)))
    assert finding.message.startswith(told)
    assert any(line.startswith("main/pool: ") for line in finding.evidence)


def test_a_cause_says_more() -> None:
    hungry = Thread("main", on_cpu=0.5, run_queue=0.4, involuntary=80)
    scene = PROGRAM.but(threads=(hungry,), cores=2)
    assert {one.rule for one in diagnose(scene.trace()).findings} == {"run-queue-starvation"}


@pytest.mark.parametrize(("run_queue", "told"), [(0.08, True), (0.3, False)])
def test_a_wait_for_a_cpu_that_is_little_hides_no_lock(run_queue: float, told: bool) -> None:
    hungry = Thread("main", on_cpu=0.02, run_queue=run_queue, asleep_in="futex", involuntary=80)
    found = {one.rule: one for one in diagnose(PROGRAM.but(threads=(hungry,), cores=2).trace()).findings}
    assert list(found) == ["run-queue-starvation", *(["time-spent"] if told else [])]
    assert not told or "futex" in found["time-spent"].message


@pytest.mark.parametrize("scene", [ENGINE, SERVED])
def test_a_server_is_judged_by_its_requests(scene: Scene) -> None:
    assert said(scene.but(threads=LOCKED.threads if scene is SERVED else scene.threads)) == []
