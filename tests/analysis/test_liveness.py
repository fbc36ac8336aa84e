"""Whether a server lives: facts that fire, and what looks like them and is well."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules import core_dump, xid
from llmtop.analysis.rules.live_rules import LIVENESS, RULES, silenced_by
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series import ages
from llmtop.analysis.series.readings import as_of, counter_rate
from llmtop.analysis.server.fault import for_s, said_of
from llmtop.analysis.server.liveness import Life, Liveness, liveness
from llmtop.analysis.server.view import ServerView, server_load
from llmtop.model import NS_PER_S, Origin, Reading, Series, Severity, Trace, Track, TrackKind, Unknown
from llmtop.session import Recorder
from llmtop.vocabulary import EndpointAnswer, ProcessState
from tests.analysis.verdict_scenes import ALIVE, API, ENGINE_KILLED, EXITED, SITUATIONS, START_NS, STUCK, Scene, Thread

ENGINE = Thread()
WORKERS = tuple(Thread(f"Worker_TP{i}", 100 + i, 100 + i) for i in range(2))


def life_of(scene: Scene) -> Liveness:
    return liveness(scene.trace())


def states(scene: Scene) -> list[str]:
    """What the header would say."""
    return [fault.state for fault in life_of(scene).faults]


def renamed(scene: Scene, pid: int, **facts: float | str | Unknown) -> Trace:
    """The trace with other facts of an ended part."""
    trace = scene.trace()
    track = trace.tracks[ids.ended(pid, 1)]
    return replace(trace, tracks={**trace.tracks, track.id: replace(track, facts={**track.facts, **facts})})


@pytest.mark.parametrize(
    ("situation", "life", "state"),
    [
        ("exited", Life.DEAD, "SERVER DEAD"),
        ("engine killed", Life.FAULTY, "ENGINE DEAD"),
        ("engine stopped", Life.FAULTY, "ENGINE STOPPED"),
        ("frozen", Life.FAULTY, "SERVER FROZEN"),
        ("engine frozen alone", Life.FAULTY, "ENGINE FROZEN"),
        ("engine hung in the kernel", Life.FAULTY, "ENGINE HUNG"),
        ("engine deadlocked", Life.FAULTY, "ENGINE HUNG"),
        ("endpoint refused", Life.FAULTY, "ENDPOINT DEAD"),
        ("endpoint hangs", Life.FAULTY, "ENDPOINT HANGS"),
        ("endpoint fails", Life.FAULTY, "ENDPOINT FAILING"),
        ("out of file descriptors", Life.FAULTY, "OUT OF FILES"),
        ("all requests are refused", Life.FAULTY, "ALL REQUESTS REFUSED"),
    ],
)
def test_the_header_names_it(situation: str, life: Life, state: str) -> None:
    trace = SITUATIONS[situation][0].trace()
    verdict = liveness(trace)

    assert verdict.life is life
    assert verdict.gravest is not None
    assert verdict.gravest.state == state
    assert diagnose(trace).findings[0].message.startswith(f"{state}: "), "and it stands first"
    assert diagnose(trace).findings[0].severity is Severity.ERROR


def test_requests_may_still_be_served_where_the_endpoint_alone_is_gone() -> None:
    def is_whole(situation: str) -> bool:
        gravest = liveness(SITUATIONS[situation][0].trace()).gravest
        assert gravest is not None
        return gravest.is_whole

    assert [is_whole(one) for one in ("endpoint refused", "endpoint hangs", "endpoint fails")] == [False] * 3
    assert is_whole("exited")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-1, "a moment"), (0.99, "a moment"), (1, "1 s"), (119.4, "119 s"), (120, "2 min"), (600, "10 min")],
)
def test_how_long_ago_is_said_as_people_do(seconds: float, said: str) -> None:
    assert for_s(0, round(seconds * NS_PER_S)) == said


def test_a_server_that_lives_has_no_fault() -> None:
    assert life_of(ALIVE) == Liveness(Life.ALIVE)
    assert life_of(Scene()).life is Life.UNKNOWN, "nobody has looked at its processes"


def test_the_header_counts_the_seconds() -> None:
    [fault] = life_of(ENGINE_KILLED).faults
    assert said_of(fault, fault.since_ns) == "ENGINE DEAD"
    assert said_of(fault, fault.since_ns + 5 * NS_PER_S) == "ENGINE DEAD 5 s"


# Ending


def at(scene: Scene, after_s: float) -> list[str]:
    """What the header would say so long after the port was closed."""
    then = as_of(scene.trace(), START_NS + int((90 - 14 + after_s) * NS_PER_S))
    return [fault.state for fault in liveness(then).faults]


CLOSED = ALIVE.but(answer=(EndpointAnswer.METRICS, EndpointAnswer.REFUSED))


def test_a_server_that_shuts_down_is_not_called_dead_while_it_may_be_at_it() -> None:
    assert at(CLOSED, 1) == ["SERVER ENDING"]
    assert at(CLOSED, 12) == ["ENDPOINT DEAD"], "it has had time"


@pytest.mark.parametrize(
    ("how", "states"),
    [
        ("exit code 0", ["SERVER ENDING"]),
        ("killed by SIGTERM", ["SERVER ENDING"]),
        ("killed by SIGKILL", ["ENGINE DEAD", "SERVER ENDING"]),
    ],
)
def test_parts_that_end_in_order_belong_to_it(how: str, states: list[str]) -> None:
    closed_ns = START_NS + (90 - 14) * NS_PER_S
    trace = renamed(CLOSED.but(ended={7: ("EngineCore", how)}), 7, ended_ns=closed_ns + NS_PER_S)
    then = liveness(as_of(trace, closed_ns + 4 * NS_PER_S))
    assert [fault.state for fault in then.faults] == states


@pytest.mark.parametrize(
    ("closed_s", "rest_s", "while_ending", "over"),
    [
        (0.5, 2, ["SERVER ENDING"], "SERVER ENDED"),
        (1.5, 2, ["ENGINE DEAD", "SERVER ENDING"], "SERVER DEAD"),
        (0.5, 9, ["ENGINE DEAD", "SERVER ENDING"], "SERVER DEAD"),
    ],
    ids=["closed, then killed", "killed, then closed", "closed for want of requests"],
)
def test_an_engine_that_the_server_kills_at_its_end_is_no_dead_engine(
    closed_s: float, rest_s: float, while_ending: list[str], over: str
) -> None:
    """The engine was last seen alive one second after the last page, and its end two seconds after."""

    def shut_down(scene: Scene, page_ns: int) -> Trace:
        trace = renamed(scene, 7, alive_ns=page_ns + NS_PER_S, ended_ns=page_ns + 2 * NS_PER_S)
        endpoint = trace.tracks[ids.endpoint(1)]
        idle_ns = (rest_s - 2) * NS_PER_S
        closed = {**endpoint.facts, "closed_ns": page_ns + int((closed_s + idle_ns / NS_PER_S) * NS_PER_S)}
        return replace(trace, tracks={**trace.tracks, endpoint.id: replace(endpoint, facts=closed)})

    ended = {7: ("EngineCore", "killed by SIGKILL")}
    scene = CLOSED.but(threads=(API,), ended=ended)
    answers = scene.trace().get(ids.endpoint(1), v.ENDPOINT_ANSWER)
    assert answers is not None
    page_ns = max(t for t, answer in answers.known if answer == EndpointAnswer.METRICS)
    ending = as_of(shut_down(scene, page_ns), page_ns + 4 * NS_PER_S)
    assert [fault.state for fault in liveness(ending).faults] == while_ending

    gone = EXITED.but(answer=CLOSED.answer, ended={5: ("APIServer", "exit code 0"), **ended})
    [fault] = liveness(shut_down(gone, page_ns)).faults
    assert fault.state == over
    assert "EngineCore (pid 7)" in fault.message, "that it was killed is said, whoever did it"
    if over == "SERVER ENDED":
        assert "its log says whether it was told to end" in fault.action


@pytest.mark.parametrize(
    ("closed_after_s", "how", "states"),
    [
        (0.2, "killed by SIGKILL", ["SERVER ENDING"]),
        (0.8, "killed by SIGKILL", ["ENGINE DEAD", "SERVER ENDING"]),
        (0.2, "killed by SIGSEGV", ["ENGINE DEAD", "SERVER ENDING"]),
    ],
    ids=["the server killed it", "it was killed", "it crashed"],
)
def test_a_server_may_kill_its_engine_first_and_close_its_port_right_after(
    closed_after_s: float, how: str, states: list[str]
) -> None:
    """As vLLM 0.26 does on SIGTERM; the moment of the death is known from its pidfd."""
    scene = CLOSED.but(threads=(API,), ended={7: ("EngineCore", how)})
    answers = scene.trace().get(ids.endpoint(1), v.ENDPOINT_ANSWER)
    assert answers is not None
    page_ns = max(t for t, answer in answers.known if answer == EndpointAnswer.METRICS)
    trace = renamed(scene, 7, alive_ns=page_ns + NS_PER_S, ended_ns=page_ns + NS_PER_S)
    endpoint = trace.tracks[ids.endpoint(1)]
    facts = {**endpoint.facts, "closed_ns": page_ns + NS_PER_S + int(closed_after_s * NS_PER_S)}
    closed = replace(trace, tracks={**trace.tracks, endpoint.id: replace(endpoint, facts=facts)})
    then = as_of(closed, page_ns + 4 * NS_PER_S)
    assert [fault.state for fault in liveness(then).faults] == states


def killed_and_closed(
    facts: dict[str, str | int], root: dict[str, str | int], beside: dict[str, str | int] | None = None
) -> Liveness:
    """An engine that was killed 0.2 s before the port was closed, and a server that has exited in order."""
    scene = EXITED.but(
        answer=CLOSED.answer, ended={5: ("APIServer", "exit code 0"), 7: ("EngineCore", "killed by SIGKILL")}
    )
    answers = scene.trace().get(ids.endpoint(1), v.ENDPOINT_ANSWER)
    assert answers is not None
    page_ns = max(t for t, answer in answers.known if answer == EndpointAnswer.METRICS)
    trace = renamed(scene, 7, root=5, alive_ns=page_ns + NS_PER_S, ended_ns=page_ns + NS_PER_S, **facts)
    ended = trace.tracks[ids.ended(5, 1)]
    endpoint = trace.tracks[ids.endpoint(1)]
    tracks = {
        ended.id: replace(ended, facts={**ended.facts, "ended_ns": page_ns + NS_PER_S + NS_PER_S // 5, **root}),
        endpoint.id: replace(endpoint, facts={**endpoint.facts, "closed_ns": page_ns + NS_PER_S + NS_PER_S // 5}),
    }
    if beside is not None:
        other = replace(ended, id=ids.ended(9, 1), facts={**ended.facts, "pid": 9, "root": 5, **beside})
        tracks[other.id] = other
    return liveness(replace(trace, tracks={**trace.tracks, **tracks}))


BY_BASH = "killed by SIGKILL from pid 42 (bash)"


def test_who_killed_the_engine_of_a_server_that_then_ended_is_no_question_where_the_kernel_told() -> None:
    [unknown] = killed_and_closed({}, {}).faults
    assert unknown.state == "SERVER ENDED"
    assert "by the server's own end or before it" in unknown.message

    [outside] = killed_and_closed({"sender": "outside", "how": BY_BASH}, {}).faults
    assert outside.state == "SERVER DEAD"
    assert outside.message.endswith(f"after EngineCore (pid 7): {BY_BASH}")
    assert "by whom is said" in outside.action
    assert any("signal_generate" in line for line in outside.evidence)

    own = "killed by SIGKILL from the server's own APIServer (pid 5)"
    [by_itself] = killed_and_closed({"sender": "own", "how": own}, {}).faults
    assert by_itself.state == "SERVER ENDED"
    assert "killed" not in by_itself.message
    assert any(own in line for line in by_itself.evidence)


@pytest.mark.parametrize(("told_ns", "state"), [(1, "SERVER ENDED"), (3, "SERVER DEAD")])
def test_a_supervisor_may_kill_what_is_left_of_a_server_that_it_has_told_to_end(told_ns: int, state: str) -> None:
    engine: dict[str, str | int] = {"sender": "outside", "sent_ns": 2, "how": BY_BASH}
    [fault] = killed_and_closed(engine, {"sender": "outside", "sent_ns": told_ns}).faults
    assert fault.state == state


@pytest.mark.parametrize("told", [{"pid": 9}, {"pid": 5, "is_regular": 0}], ids=["a part", "one that crashed"])
def test_a_server_is_not_told_to_end_by_what_another_of_its_parts_was_told(told: dict[str, str | int]) -> None:
    engine: dict[str, str | int] = {"sender": "outside", "sent_ns": 2, "how": BY_BASH}
    life = killed_and_closed(engine, {"sender": "outside", "sent_ns": 3}, {"sent_ns": 1, **told})
    assert "SERVER DEAD" in [fault.state for fault in life.faults]


def test_an_engine_that_its_server_killed_is_missed_while_the_port_stays_open() -> None:
    [fault] = liveness(renamed(ENGINE_KILLED, 7, sender="own")).faults
    assert fault.state == "ENGINE DEAD"


def test_a_killed_engine_is_called_dead_when_the_port_has_had_time_to_close() -> None:
    trace = ENGINE_KILLED.trace()
    ended_ns = int(float(str(trace.tracks[ids.ended(7, 1)].facts["ended_ns"])))
    early, late = (liveness(as_of(trace, ended_ns + int(s * NS_PER_S))).faults for s in (0.9, 1.1))
    assert not early
    assert [fault.state for fault in late] == ["ENGINE DEAD"]


def test_an_engine_that_ends_as_told_while_the_port_is_open_is_dead_after_a_moment() -> None:
    scene = ENGINE_KILLED.but(ended={7: ("EngineCore", "killed by SIGTERM")})
    assert states(scene) == ["ENGINE DEAD"]
    trace = scene.trace()
    ended_ns = int(float(str(trace.tracks[ids.ended(7, 1)].facts["ended_ns"])))
    assert not liveness(as_of(trace, ended_ns + NS_PER_S)).faults


# Gone


def test_a_dead_engine_says_who_how_and_who_is_left() -> None:
    [fault] = life_of(ENGINE_KILLED).faults
    assert fault.message == (
        "EngineCore (pid 7) is dead: killed by SIGKILL, 5 s ago; "
        "APIServer (pid 5) still runs and can serve nothing without it"
    )
    assert fault.is_whole


def test_an_exit_that_was_asked_for_is_no_death() -> None:
    told = EXITED.but(ended={5: ("APIServer", "killed by SIGTERM")})
    assert states(told) == ["SERVER ENDED"]
    assert states(EXITED.but(ended={5: ("APIServer", "")})) == ["SERVER DEAD"]


def test_want_of_memory_is_named() -> None:
    trace = renamed(ENGINE_KILLED, 7, is_oom=1, words="Out of memory: Killed process 7 (python3)")
    [fault] = liveness(trace).faults
    assert fault.state == "ENGINE KILLED: OUT OF MEMORY"
    assert "Out of memory: Killed process 7 (python3) (kernel log)" in fault.evidence
    assert "more memory" in fault.action


def test_the_error_that_its_log_names_is_what_to_mend() -> None:
    said = {"log_error": "ValueError: no room", "log_command": "tail -n 200 /var/log/vllm.log"}
    [fault] = liveness(renamed(ENGINE_KILLED, 7, how="exit code 1", **said)).faults
    assert fault.action == "mend this and restart: ValueError: no room"
    assert "its log ends with: ValueError: no room" in fault.evidence
    assert fault.next_command == "tail -n 200 /var/log/vllm.log"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("bye", "restart the server; its log names no error and ends with: bye"),
        ("", "restart the server; it wrote nothing that says why it ended"),
        (Unknown("it went away", "keep it"), "restart the server; it went away, which hid why it ended: keep it"),
    ],
)
def test_a_log_without_an_error_is_not_said_to_tell_why(end: str | Unknown, said: str) -> None:
    [fault] = liveness(renamed(EXITED, 5, how="exit code 1", log_end=end)).faults
    assert fault.action == said


def test_what_outlives_the_server_is_to_be_ended_too() -> None:
    scene = EXITED.but(threads=ALIVE.threads, states={7: ProcessState.ALIVE}, ended={5: ("APIServer", "exit code 1")})
    ended_ns = START_NS + 80 * NS_PER_S
    trace = renamed(scene, 5, ended_ns=ended_ns, root=5)
    said = [liveness(as_of(trace, ended_ns + s * NS_PER_S)).faults[0].action for s in (1, 2)]
    assert "GPU memory" not in said[0]
    assert said[1].endswith("; end what is left of it before, it may hold GPU memory: kill 7")


def test_what_had_ended_before_the_first_look_is_told_so() -> None:
    [fault] = liveness(renamed(ENGINE_KILLED, 7, is_zombie=1, parent=5, was_over=1)).faults
    assert re.search(r"at least \d+ s ago, before llmtop came; APIServer", fault.message)
    assert "before llmtop came" in fault.evidence[0]


def test_a_zombie_names_the_parent_that_does_not_look() -> None:
    [fault] = liveness(renamed(ENGINE_KILLED, 7, is_zombie=1, parent=5)).faults
    assert "is dead, a zombie" in fault.message
    assert any("its parent (pid 5) has not noticed" in line for line in fault.evidence)


def test_ranks_that_die_together_are_one_fault() -> None:
    dead = {100: ("Worker_TP0", "killed by SIGKILL"), 101: ("Worker_TP1", "killed by SIGKILL")}
    [fault] = life_of(ALIVE.but(ended=dead)).faults
    assert (fault.state, fault.subject) == ("WORKER_TP0 DEAD", "Worker_TP0")
    assert "Worker_TP0 (pid 100) and 1 more is dead" in fault.message


def test_with_the_server_its_parts_are_one_fault() -> None:
    dead = {5: ("APIServer", "exit code 1"), 7: ("EngineCore", "killed by SIGKILL")}
    [fault] = life_of(EXITED.but(ended=dead, states={5: ProcessState.ALIVE})).faults
    assert fault.state == "SERVER DEAD"
    assert any("EngineCore (pid 7) ended" in line for line in fault.evidence)


def test_a_server_that_ended_in_order_after_its_engine_was_killed_is_dead() -> None:
    dead = {5: ("APIServer", "exit code 0"), 7: ("EngineCore", "killed by SIGKILL")}
    scene = EXITED.but(ended=dead, states={5: ProcessState.ALIVE})
    assert states(scene) == ["SERVER ENDED"], "both ended at once: it was told to"
    trace = scene.trace()
    [fault] = liveness(renamed(scene, 7, ended_ns=trace.end_ns - 7 * NS_PER_S)).faults
    assert fault.state == "SERVER DEAD"
    assert fault.message == (
        "the server has exited: exit code 0, 5 s ago (APIServer, pid 5), after EngineCore (pid 7): killed by SIGKILL"
    )
    assert not diagnose(renamed(scene, 7)).unjudged, "of what does not live nothing else is asked"
    long_before = renamed(scene, 7, ended_ns=trace.end_ns - 80 * NS_PER_S)
    assert [one.state for one in liveness(long_before).faults] == ["SERVER ENDED"]


def test_of_two_that_one_look_finds_over_the_part_is_named_where_it_must_have_been_first() -> None:
    killed = {7: ("EngineCore", "killed by SIGKILL")}
    gave_up = EXITED.but(ended={5: ("APIServer", "exit code 1"), **killed}, states={5: ProcessState.ALIVE})
    assert "after EngineCore (pid 7): killed by SIGKILL" in life_of(gave_up).faults[0].message
    both = gave_up.but(ended={5: ("APIServer", "killed by SIGKILL"), **killed})
    assert "after" not in life_of(both).faults[0].message
    [fault] = liveness(renamed(both, 7, is_oom=1)).faults
    assert fault.state == "SERVER KILLED: OUT OF MEMORY"


def test_a_pool_that_shrinks_as_it_was_told_to_is_well() -> None:
    pool = ALIVE.but(
        threads=(API, *WORKERS[:1]),
        states={5: ProcessState.ALIVE, 100: ProcessState.ALIVE},
        ended={101: ("Worker_TP1", "exit code 0")},
    )
    assert life_of(pool) == Liveness(Life.ALIVE)
    assert states(pool.but(ended={101: ("Worker_TP1", "killed by SIGKILL")})) == ["WORKER_TP1 DEAD"]


def test_a_part_that_was_started_again_is_well() -> None:
    again = Thread("EngineCore", 9, 9)
    trace = ALIVE.but(
        threads=(API, again), states={5: ProcessState.ALIVE, 9: ProcessState.ALIVE}, ended={7: ("EngineCore", "")}
    ).trace()
    assert [fault.state for fault in liveness(trace).faults] == ["ENGINE DEAD"], "the other was there before its end"
    key = (ids.process(9), v.PROCESS_STATE.name)
    late = replace(trace, series={**trace.series, key: trace.series[key].newest(3)})
    assert liveness(late) == Liveness(Life.ALIVE)


def test_before_its_end_it_lived() -> None:
    trace = ENGINE_KILLED.trace()
    assert liveness(as_of(trace, trace.end_ns - 10 * NS_PER_S)).faults == ()
    exited = EXITED.trace()
    assert liveness(as_of(exited, exited.end_ns - 10 * NS_PER_S)).life is Life.UNKNOWN


# Stopped and hung


def test_a_debugger_that_only_looks_holds_nothing() -> None:
    now = {5: ProcessState.ALIVE, 7: (ProcessState.ALIVE, ProcessState.TRACED)}
    trace = ALIVE.but(states=now).trace()
    assert [fault.state for fault in liveness(trace).faults] == ["ENGINE STOPPED"]
    first_look = START_NS + (90 - 14) * NS_PER_S
    assert liveness(as_of(trace, first_look)).faults == (), "one look may have met py-spy"


def test_one_api_server_of_several_that_stops_does_not_stop_the_server() -> None:
    more = ALIVE.but(
        threads=(API, Thread("APIServer", 6, 6), ENGINE),
        states={5: ProcessState.ALIVE, 6: ProcessState.STOPPED, 7: ProcessState.ALIVE},
    )
    [fault] = life_of(more).faults
    assert (fault.state, fault.is_whole) == ("APISERVER STOPPED", False)


def test_all_parts_stopped_are_the_server() -> None:
    assert states(ALIVE.but(states={5: ProcessState.STOPPED, 7: ProcessState.STOPPED})) == ["SERVER STOPPED"]


def test_reading_weights_in_state_d_is_no_hang() -> None:
    loading = {5: ProcessState.ALIVE, 7: ProcessState.UNINTERRUPTIBLE}
    assert life_of(ALIVE.but(states=loading)) == Liveness(Life.ALIVE), "it takes 35 % of a CPU"
    short = {5: ProcessState.ALIVE, 7: (ProcessState.ALIVE, ProcessState.UNINTERRUPTIBLE)}
    trace = ALIVE.but(states=short, threads=(API, Thread(on_cpu=0.0))).trace()
    after_3_s = START_NS + (90 - 12) * NS_PER_S
    assert liveness(as_of(trace, after_3_s)).faults == ()


# Tokens that stand still

WELL_THOUGH_STILL = {
    "no request runs": STUCK.but(running=0.0),
    "the requests have just come": STUCK.but(running=(0.0, 0.0)),
    "a long prompt keeps the GPU busy": STUCK.but(gpus=(98.0,), dram=20.0, tensor=60.0),
    "it compiles": STUCK.but(threads=(API, Thread(on_cpu=0.99))),
    "compilers work for it": STUCK.but(
        threads=(API, Thread(on_cpu=0.0), Thread("ptxas", 8, 8, on_cpu=0.9)),
        states={5: ProcessState.ALIVE, 7: ProcessState.ALIVE, 8: ProcessState.ALIVE},
    ),
    "prompts are taken in": STUCK.but(gauges={("server:1", v.SERVER_PROMPT_TOKENS): 0.0}, tokens=(900.0, 1.0)),
    "its GPU cannot be seen": STUCK.but(gpus=(), threads=(API, Thread(on_cpu=0.0, asleep_in="gpu_driver"))),
}


@pytest.mark.parametrize("case", WELL_THOUGH_STILL)
def test_tokens_that_stand_still_for_a_reason_are_no_hang(case: str) -> None:
    trace = WELL_THOUGH_STILL[case].trace()
    if "cannot be seen" in case:
        thread = trace.tracks[ids.thread(7, 7)]
        facts = {**thread.facts, "state": v.ThreadCause.GPU_DRIVER.value}
        trace = replace(trace, tracks={**trace.tracks, thread.id: replace(thread, facts=facts)})
    assert liveness(trace) == Liveness(Life.ALIVE)


def test_a_hang_is_named_after_two_seconds_of_data() -> None:
    trace = STUCK.trace()
    # The last tokens came with the look before the window of 15 s.
    assert liveness(as_of(trace, START_NS + (90 - 14) * NS_PER_S)).faults == ()
    [fault] = liveness(as_of(trace, START_NS + (90 - 13) * NS_PER_S)).faults
    assert fault.message.startswith("no token for 2 s while 8 requests run, and nothing works")


def test_a_loop_that_only_polls_is_a_hang_long_before_one_that_computes() -> None:
    """For ten seconds, and not for less: another node may be at work on a step."""
    polls = STUCK.but(threads=(API, Thread(on_cpu=0.98, yields=400_000)))
    (fault,) = life_of(polls).faults
    assert fault.state == "ENGINE HUNG"
    assert "all of it polling (probes)" in fault.evidence[1]
    assert not states(STUCK.but(threads=(API, Thread(on_cpu=0.98)))), "it may compile"
    assert not states(polls.but(threads=(*polls.threads, Thread("Worker", 9, 9, on_cpu=0.5)))), "another one works"
    assert not states(polls.but(gpus=())), "its GPU may be what it polls"
    assert not liveness(as_of(polls.trace(), polls.trace().end_ns - 6 * NS_PER_S)).faults, "it began nine seconds ago"


def test_one_busy_core_of_which_nothing_comes_for_long_is_a_loop() -> None:
    still = STUCK.but(tokens=0.0, latencies=0.0)
    [fault] = life_of(still.but(threads=(API, Thread(on_cpu=0.99)))).faults
    assert (fault.rule, fault.state) == ("engine-hung", "ENGINE HUNG")
    assert "one CPU is busy all the time" in fault.message
    many = tuple(Thread(tid=7 + i, name=f"cpu-{i}", on_cpu=0.9) for i in range(4))
    assert life_of(still.but(threads=(API, *many))).faults == (), "a model that runs on CPUs"


# The endpoint


def test_a_server_that_starts_has_nothing_to_lose() -> None:
    starting = ALIVE.but(running=None, waiting=None)
    for answer in (
        EndpointAnswer.REFUSED,
        EndpointAnswer.NOT_HTTP,
        EndpointAnswer.STRANGE,
        EndpointAnswer.UNREACHABLE,
        404,
        401,
        503,
    ):
        assert life_of(starting.but(answer=answer)).gravest is None, answer
    assert states(starting.but(answer=500)) == ["ENDPOINT FAILING"]
    assert isinstance(life_of(starting.but(answer=EndpointAnswer.REFUSED)).serving, Unknown), "it may never serve"


@pytest.mark.parametrize(
    ("scene", "serves"),
    [
        (ALIVE, True),
        (SITUATIONS["clients leave"][0], True),
        (SITUATIONS["endpoint hangs"][0], False),
        (SITUATIONS["all requests are refused"][0], False),
        (SITUATIONS["engine deadlocked"][0], False),
        (EXITED, False),
        (ALIVE.but(answer=404), None),
        (ALIVE.but(answer=None), None),
    ],
)
def test_a_server_serves_where_something_shows_it(scene: Scene, serves: bool | None) -> None:
    serving = life_of(scene).serving
    assert (None if isinstance(serving, Unknown) else serving) is serves


@pytest.mark.parametrize(("after_s", "overdue", "severity"), [(4, 1, None), (6, 1, "error"), (14, 0, None)])
def test_one_that_should_be_up_and_has_never_answered_hangs(after_s: int, overdue: int, severity: str | None) -> None:
    """Also to a snapshot of a few seconds that begins after the incident."""
    scene = ALIVE.but(running=None, waiting=None, answer=EndpointAnswer.SILENT, answer_s=0.0, seconds=after_s)
    trace = scene.trace()
    endpoint = trace.tracks[ids.endpoint(1)]
    facts = {**endpoint.facts, **({"overdue": 1} if overdue else {})}
    seen = liveness(replace(trace, tracks={**trace.tracks, endpoint.id: replace(endpoint, facts=facts)}))
    assert (seen.gravest.severity if seen.gravest else None) == severity
    assert (seen.serving is False) == (severity is not None)


def test_a_hang_is_measured_against_what_is_usual() -> None:
    def asked(answer_s: tuple[float, float], after_s: int) -> list[str]:
        trace = ALIVE.but(answer=(EndpointAnswer.METRICS, EndpointAnswer.SILENT), answer_s=answer_s).trace()
        then = as_of(trace, START_NS + (90 - 14 + after_s) * NS_PER_S)
        return [fault.state for fault in liveness(then).faults]

    assert asked((0.005, 0.8), 0) == []
    assert asked((0.005, 1.6), 0) == ["ENDPOINT HANGS"]
    assert asked((0.005, 0.0), 2) == ["ENDPOINT HANGS"], "it is two seconds since the first look without an answer"
    assert asked((0.9, 2.0), 0) == [], "of one that takes 0.9 s nobody expects more"
    assert asked((0.9, 3.0), 0) == ["ENDPOINT HANGS"]


def test_an_event_loop_that_waits_to_write_its_log_is_named() -> None:
    stuck = replace(API, on_cpu=0.0, asleep_in="pipe")
    [fault] = life_of(SITUATIONS["endpoint hangs"][0].but(threads=(stuck, ENGINE))).faults
    assert fault.message.endswith("its event loop waits at a pipe or a FIFO")
    assert "a log shipper that is stopped" in fault.action


def test_a_front_end_without_a_cpu_is_not_stuck() -> None:
    hangs = SITUATIONS["endpoint hangs"][0]
    [fault] = life_of(hangs.but(threads=(replace(API, on_cpu=0.01, run_queue=0.98), ENGINE))).faults
    assert fault.message.endswith("the front end gets no CPU")
    assert "waits for a CPU 98%" in fault.evidence[0]
    assert "is stuck" in life_of(hangs).faults[0].message


@pytest.mark.parametrize(("after_s", "said"), [(12, []), (75, ["ENDPOINT HANGS"])])
def test_a_server_that_was_restarted_may_listen_before_it_can_answer(after_s: int, said: list[str]) -> None:
    trace = ALIVE.but(answer=(EndpointAnswer.METRICS, EndpointAnswer.SILENT), answer_s=(0.005, after_s)).trace()
    then = START_NS + (90 - 14) * NS_PER_S
    anew = {key: replace_times(one, then) for key, one in trace.series.items() if one.metric == v.PROCESS_STATE}
    waited = Series.of(ids.endpoint(1), v.ENDPOINT_TIME, "GET", [(then, 0.005), (then + after_s * NS_PER_S, after_s)])
    answers = Series.of(
        ids.endpoint(1),
        v.ENDPOINT_ANSWER,
        "GET",
        [(START_NS, EndpointAnswer.METRICS), (then + after_s * NS_PER_S, EndpointAnswer.SILENT)],
    )
    series = {**trace.series, **anew, (ids.endpoint(1), waited.metric.name): waited}
    series[ids.endpoint(1), answers.metric.name] = answers
    restarted = replace(trace, end_ns=then + after_s * NS_PER_S, series=series)
    assert [fault.state for fault in liveness(restarted).faults] == said


def between_steps(scene: Scene) -> Scene:
    """The same of a server whose engine answers for the metrics itself, as llama-server's."""
    return scene.but(facts={"answers_between_steps": 1})


@pytest.mark.parametrize(("on_cpu", "run_queue"), [(0.53, 0.47), (0.97, 0.03)])
def test_a_page_that_the_engine_answers_between_steps_waits_for_a_step(on_cpu: float, run_queue: float) -> None:
    """llama-server with prompts of 700 tokens on a shared core: 1.1 s without an answer, 1 ms before."""
    at_work = ALIVE.but(
        threads=(API, Thread(on_cpu=on_cpu, run_queue=run_queue)),
        answer=(EndpointAnswer.METRICS, EndpointAnswer.SILENT),
        answer_s=(0.001, 1.1),
    )
    then = START_NS + (90 - 14) * NS_PER_S
    [fault] = liveness(as_of(between_steps(at_work).trace(), then)).faults
    assert (fault.state, fault.severity, fault.rule) == ("ENDPOINT LATE", Severity.WARNING, "endpoint-slow")
    assert "a long step, as of a prompt, holds it up, or it gets no CPU" in fault.message
    assert fault.evidence[0].startswith("waited 1.1 s for it so far")
    [other] = liveness(as_of(at_work.trace(), then)).faults
    assert (other.state, other.severity) == ("ENDPOINT HANGS", Severity.ERROR)


@pytest.mark.parametrize(
    ("thread", "waited_s"), [(Thread(on_cpu=0.1, asleep_in="futex"), 1.1), (Thread(on_cpu=0.97), 61.0)]
)
def test_an_engine_that_rests_or_never_comes_back_is_at_no_step(thread: Thread, waited_s: float) -> None:
    scene = ALIVE.but(
        threads=(API, thread), answer=(EndpointAnswer.METRICS, EndpointAnswer.SILENT), answer_s=(0.001, waited_s)
    )
    [fault] = liveness(as_of(between_steps(scene).trace(), START_NS + (90 - 14) * NS_PER_S)).faults
    assert (fault.state, fault.severity) == ("ENDPOINT HANGS", Severity.ERROR)


def test_a_page_between_steps_that_is_slow_tells_of_long_steps() -> None:
    [fault] = life_of(between_steps(ALIVE.but(answer_s=1.4))).faults
    assert (fault.state, fault.severity) == ("ENDPOINT SLOW", Severity.WARNING)
    assert fault.message == "it takes 1.4 s to answer: a long step, as of a prompt, holds it up, or it gets no CPU"
    assert fault.action == "smaller steps, shorter prompts, CPUs of its own"


def replace_times(series: Series, start_ns: int) -> Series:
    """The samples from this moment on."""
    return Series.of(series.track, series.metric, series.source, [one for one in series.known if one[0] >= start_ns])


def test_a_page_that_is_still_waited_for_counts_before_it_has_failed() -> None:
    trace = ALIVE.trace()
    key, t = (ids.endpoint(1), v.ENDPOINT_TIME.name), trace.end_ns + 2 * NS_PER_S
    for waited_s, said in ((0.9, ["ENDPOINT HANGS"]), (0.2, [])):
        times = Series.of(key[0], v.ENDPOINT_TIME, "GET", [(trace.end_ns, 0.005), (t, waited_s)])
        then = replace(trace, end_ns=t, series={**trace.series, key: times})
        assert [fault.state for fault in liveness(then).faults] == said


def test_since_when_a_process_is_stopped_is_not_known_where_the_first_look_found_it_so() -> None:
    [before] = life_of(ALIVE.but(states={5: ProcessState.ALIVE, 7: ProcessState.STOPPED})).faults
    seen = {5: ProcessState.ALIVE, 7: (ProcessState.ALIVE, ProcessState.STOPPED)}
    [since] = life_of(ALIVE.but(states=seen)).faults
    assert ", for at least " in before.message
    assert ": state T for at least " in before.evidence[0]
    assert "at least" not in "".join((since.message, *since.evidence))


def test_a_slow_endpoint_is_a_warning_and_silences_nothing() -> None:
    [fault] = life_of(ALIVE.but(answer_s=1.4)).faults
    assert (fault.state, fault.severity) == ("ENDPOINT SLOW", Severity.WARNING)
    assert "1.4 s to answer" in fault.message


@pytest.mark.parametrize(("own_s", "said"), [(1.39, "METRICS SLOW"), (0.05, "ENDPOINT SLOW")])
def test_a_page_that_is_slow_by_itself_is_no_front_end_that_has_no_time(own_s: float, said: str) -> None:
    trace = ALIVE.but(answer_s=1.4).trace()
    track = trace.tracks[ids.endpoint(1)]
    compared = replace(track, facts={**track.facts, "own_s": own_s})
    [fault] = liveness(replace(trace, tracks={**trace.tracks, track.id: compared})).faults
    assert fault.state == said
    assert ("every request waits" in fault.message) == (said == "ENDPOINT SLOW")


def test_what_an_endpoint_said_long_ago_is_over() -> None:
    assert states(ALIVE.but(answer=(EndpointAnswer.METRICS, 500), silent_for=20)) == []


# What it silences


def test_all_live_rules_are_silent_beside_a_server_that_does_not_work() -> None:
    """But for what may be why it does not."""
    for rule in RULES:
        if rule not in (*LIVENESS, core_dump, xid):
            assert {"process-gone", "process-stopped", "engine-hung"} <= {one.id for one in silenced_by(rule)}


# Ages

TRACK = Track(ids.server(1), TrackKind.SERVER, "vLLM")


def lost(after_s: int, interval_s: float = 1.0) -> Trace:
    """A server that gave 100 tokens a second for 30 s, and then nothing for so long."""
    recorder = Recorder(Origin("live"))
    recorder.tell_interval(interval_s)
    for second in range(31):
        t = START_NS + second * NS_PER_S
        readings = (
            Reading(TRACK.id, v.SERVER_OUTPUT_TOKENS, t, 100.0 * second, "metrics"),
            Reading(TRACK.id, v.SERVER_RUNNING, t, 4.0, "metrics"),
        )
        recorder.append("prometheus", Trace(Origin("live"), t, t, tracks={TRACK.id: TRACK}, readings=readings))
    end = START_NS + (30 + after_s) * NS_PER_S
    if after_s:
        gap_ns = START_NS + 31 * NS_PER_S
        gaps = tuple(Reading(TRACK.id, m, gap_ns, None, "") for m in (v.SERVER_OUTPUT_TOKENS, v.SERVER_RUNNING))
        recorder.append("prometheus", Trace(Origin("live"), gap_ns, gap_ns, readings=gaps))
    recorder.append("clock", Trace(Origin("live"), end, end))
    return recorder.freeze()


@pytest.mark.parametrize(
    ("after_s", "interval_s", "age"), [(0, 1.0, 0.0), (2, 1.0, 0.0), (3, 1.0, 3.0), (3, 2.0, 0.0), (5, 2.0, 5.0)]
)
def test_a_number_older_than_two_intervals_has_an_age(after_s: int, interval_s: float, age: float) -> None:
    trace = lost(after_s, interval_s)
    view = server_load(trace)
    assert ages.old_s(trace, TrackKind.SERVER) == age
    assert isinstance(view, ServerView)
    assert view.age_s == age


def test_the_rate_of_a_server_that_has_gone_is_not_of_now() -> None:
    assert counter_rate(lost(0), TRACK.id, v.SERVER_OUTPUT_TOKENS, 10 * NS_PER_S) == pytest.approx(100.0)
    assert counter_rate(lost(2), TRACK.id, v.SERVER_OUTPUT_TOKENS, 10 * NS_PER_S) == pytest.approx(100.0)
    assert isinstance(counter_rate(lost(3), TRACK.id, v.SERVER_OUTPUT_TOKENS, 10 * NS_PER_S), Unknown)


def test_the_rate_of_a_stopped_engine_is_of_the_time_since() -> None:
    """A mean over ten seconds would say for as long that it works."""
    stopped = {5: ProcessState.ALIVE, 7: (ProcessState.ALIVE, ProcessState.STOPPED)}
    trace = ALIVE.but(states=stopped, tokens=(900.0, 0.0)).trace()
    then = as_of(trace, START_NS + (90 - 14 + 3) * NS_PER_S)
    view = server_load(then)
    assert isinstance(view, ServerView)
    assert view.value("output_tokens_per_s") == 0.0


def test_what_was_never_read_has_no_age() -> None:
    assert ages.old_s(Trace(Origin("live")), TrackKind.GPU) == 0.0
    assert ages.known_ns(None) is None


# Parts that had ended, and whose end nobody saw


def with_core(scene: Scene, sizes: dict[str, int] | None = None, **roles: str) -> Trace:
    """Of a server whose root must have an EngineCore below it; `roles` are processes that are no parts, by name."""
    trace = scene.trace()
    root = trace.tracks[ids.process(5)]
    settings = {f"setting.{feature}": size for feature, size in (sizes or {}).items()}
    facts = {**root.facts, "core": "EngineCore", "core_since": "0.8", "engine_kind": "vllm", **settings}
    helpers = {
        ids.process(900 + i): Track(ids.process(900 + i), TrackKind.PROCESS, role, facts={"role": role, "part": 0})
        for i, role in enumerate(roles.values())
    }
    return replace(trace, tracks={**trace.tracks, root.id: replace(root, facts=facts), **helpers})


ALONE = ALIVE.but(threads=(API,), states={5: ProcessState.ALIVE}, gpus=(), tokens=0.0, latencies=0.0)


def said_missing(trace: Trace) -> list[tuple[str, str]]:
    return [(fault.state, fault.message) for fault in liveness(trace).faults]


def test_a_front_end_that_answers_and_has_no_engine_lost_it_before_llmtop_came() -> None:
    ((state, message),) = said_missing(with_core(ALONE, helper="resource_tracker"))
    assert state == "ENGINE MISSING"
    assert message.startswith("APIServer (pid 5) has no EngineCore below it: gone before llmtop came")
    assert [one.rule for one in diagnose(with_core(ALONE)).findings] == ["process-gone"]


@pytest.mark.parametrize(
    "trace",
    [
        with_core(ALONE, unnamed="spawn"),
        with_core(ALONE, unnamed="pt_main_thread"),
        with_core(ALONE, fork="APIServer"),
        with_core(ALONE.but(answer=None)),
        with_core(ALIVE),
        ALONE.trace(),
    ],
    ids=["a child without a title", "one of PyTorch", "a fork", "it starts", "it is there", "no such kind"],
)
def test_an_engine_is_missed_only_where_no_process_may_be_it(trace: Trace) -> None:
    assert not said_missing(trace)


@pytest.mark.parametrize(
    "scene",
    [
        ALONE.but(tokens=45.0),
        ALONE.but(steps=20.0),
        ALONE.but(latencies=1.0),
        ALONE.but(facts={"version": "0.5.4"}),
    ],
    ids=["tokens", "steps", "latencies", "a version without one"],
)
def test_an_engine_at_work_is_not_missing(scene: Scene) -> None:
    """It may be in the API server's own process, or on another machine."""
    assert not said_missing(with_core(scene))


def test_an_engine_whose_tokens_move_hangs_nowhere() -> None:
    scene = STUCK.but(states={5: ProcessState.ALIVE, 7: ProcessState.UNINTERRUPTIBLE})
    assert said_missing(scene.trace()), "it hangs in the kernel"
    assert not said_missing(scene.but(tokens=900.0).trace())


@pytest.mark.parametrize(
    ("there", "sizes", "missing"),
    [
        (("Worker_TP0", "Worker_TP3"), {"tensor_parallel": 4}, "2 of its ranks are not there: Worker_TP1, Worker_TP2"),
        (("Worker_TP0", "Worker_TP1"), {"tensor_parallel": 2}, ""),
        (("Worker_TP0",), {}, ""),
        (
            ("Worker_PP0_TP0", "Worker_PP0_TP1", "Worker_PP1_TP0"),
            {"tensor_parallel": 2, "pipeline_parallel": 2},
            "1 of its ranks are not there: Worker_PP1_TP1",
        ),
        (("Worker_TP0_EP0",), {"tensor_parallel": 2}, ""),
        (("scheduler_DP0_TP0", "scheduler_DP1_TP1"), {"tensor_parallel": 2, "data_parallel": 2}, ""),
    ],
)
def test_ranks_that_are_not_there(there: tuple[str, ...], sizes: dict[str, int], missing: str) -> None:
    workers = tuple(Thread(role, 100 + i, 100 + i) for i, role in enumerate(there))
    scene = ALIVE.but(
        threads=(API, ENGINE, *workers),
        states={one.pid: ProcessState.ALIVE for one in (API, ENGINE, *workers)},
        tokens=0.0,
        latencies=0.0,
    )
    said = [message for state, message in said_missing(with_core(scene, sizes)) if state == "RANK MISSING"]
    assert [message.partition(": gone")[0] for message in said] == ([missing] if missing else [])
    assert not said_missing(with_core(scene.but(tokens=900.0), sizes)), "without a rank there are no tokens"
