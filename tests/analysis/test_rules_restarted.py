"""A restart stands in the findings for some minutes, with how long nobody answered and why."""

from __future__ import annotations

from dataclasses import replace

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import restarted
from llmtop.model import NS_PER_S, Finding, Mark, MarkKind, ProcessEnd, Restart, Series, Severity, Trace
from llmtop.vocabulary import EndpointAnswer
from tests.analysis.verdict_scenes import ALIVE


def said(
    *,
    ended: str = "killed by SIGKILL",
    is_regular: bool = False,
    ago_s: int = 40,
    answers_after_s: float | None = 7.0,
    has_end: bool = True,
    killed: str = "",
) -> list[Finding]:
    """Of a server that ended `ago_s` before now and came anew five seconds later."""
    trace = ALIVE.trace()
    end, anew = trace.end_ns - ago_s * NS_PER_S, trace.end_ns - (ago_s - 5) * NS_PER_S
    again_said, who = "has been started anew: pid 5 is now pid 9", "APIServer (pid 5)"
    marks = [Mark(anew, MarkKind.SERVER, "process:9", again_said, Severity.WARNING, "vLLM", Restart(5))]
    if has_end:
        how = ProcessEnd(5, ended, is_regular)
        marks.insert(0, Mark(end, MarkKind.PROCESS, "process:5", f"exited: {ended}", Severity.ERROR, who, how))
        others = ProcessEnd(6, "exit code 3", is_regular=False)
        marks.insert(1, Mark(end, MarkKind.PROCESS, "process:6", "exited: exit code 3", Severity.ERROR, about=others))
    if killed:
        core = ProcessEnd(7, killed, is_regular=False)
        t, name = end - 2 * NS_PER_S, "EngineCore (pid 7)"
        marks.append(Mark(t, MarkKind.PROCESS, "process:7", f"exited: {killed}", Severity.ERROR, name, core))
    again = [] if answers_after_s is None else [(anew + int(answers_after_s * NS_PER_S), float(EndpointAnswer.METRICS))]
    answers = Series.of(
        ids.endpoint(1), v.ENDPOINT_ANSWER, "GET", [(end - NS_PER_S, float(EndpointAnswer.METRICS)), *again]
    )
    series = {**trace.series, (ids.endpoint(1), v.ENDPOINT_ANSWER.name): answers}
    return [
        one for one in restarted.check(replace(trace, marks=tuple(marks), series=series)) if isinstance(one, Finding)
    ]


def test_a_server_that_was_killed_and_came_back() -> None:
    (finding,) = said()
    assert finding.message == "restarted 35 s ago, was down 12 s, killed by SIGKILL"
    assert (finding.severity, finding.subject) == (Severity.WARNING, "vLLM")
    assert finding.evidence[0] == "APIServer (pid 5) exited: killed by SIGKILL (/proc, pidfd)"


def test_an_orderly_end_after_its_engine_was_killed_is_no_orderly_restart() -> None:
    (finding,) = said(ended="exit code 0", is_regular=True, killed="killed by SIGKILL from pid 3608 (bash)")
    assert finding.message.endswith("exit code 0, after EngineCore (pid 7): killed by SIGKILL from pid 3608 (bash)")
    assert finding.severity is Severity.WARNING
    (compiler,) = said(ended="exit code 0", is_regular=True, killed="exit code 1")
    assert compiler.severity is Severity.INFO


def test_one_that_was_told_to_end_is_information() -> None:
    assert [one.severity for one in said(ended="ended by SIGTERM", is_regular=True)] == [Severity.INFO]


def test_one_that_has_not_answered_yet_says_so() -> None:
    assert said(answers_after_s=None)[0].message.startswith("restarted 35 s ago, has not answered yet")


def test_an_end_that_nobody_saw_makes_no_exact_time() -> None:
    assert said(has_end=False)[0].message == (
        "restarted 35 s ago, was down 7 s or more, how the one before ended is not known"
    )


def test_after_some_minutes_it_is_history() -> None:
    assert not said(ago_s=306)


def test_a_server_that_was_never_restarted_says_nothing() -> None:
    assert not list(restarted.check(Trace(ALIVE.trace().origin)))
