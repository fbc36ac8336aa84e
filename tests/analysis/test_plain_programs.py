"""What is no server is not spoken of as one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop.analysis.pages.lanes import lanes_view
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.server.liveness import liveness
from llmtop.analysis.server.processes import watched
from llmtop.vocabulary import ProcessState
from tests.analysis.verdict_scenes import GIL, STARVED, Scene, Thread

PROGRAM = Scene((Thread("main"),), gpus=(), running=None, waiting=None, states={7: ProcessState.ALIVE})
SERVED = PROGRAM.but(running=3.0, waiting=0.0)
"""The same with the metrics of a server (--metrics-url)."""
ENGINE = PROGRAM.but(threads=(Thread("EngineCore"),))


@pytest.mark.parametrize(("scene", "what"), [(PROGRAM, "program"), (SERVED, "server"), (ENGINE, "server")])
def test_its_processes_or_its_metrics_make_it_a_server(scene: Scene, what: str) -> None:
    assert watched(scene.trace()) == what
    assert watched(scene.but(states={}, ended={7: (scene.threads[0].role, "exit code 7")}).trace()) == what


def test_of_a_trace_without_processes_nobody_knows() -> None:
    assert watched(Scene((), gpus=(), running=None, waiting=None).trace()) == "server"


@pytest.mark.parametrize(("scene", "whose"), [(PROGRAM, "main"), (SERVED, "engine"), (ENGINE, "engine")])
def test_lanes_are_of_its_main_thread(scene: Scene, whose: str) -> None:
    titles = [lane.title for lane in lanes_view(scene.trace()).lanes]
    assert {f"{whose} CPU", f"{whose} run-q"} <= set(titles)


def test_lanes_of_a_program_with_children_are_of_the_busiest_of_all() -> None:
    scene = PROGRAM.but(threads=(Thread("main", on_cpu=0.01), Thread("child", 8, 8, on_cpu=0.9)))
    assert "child CPU" in [lane.title for lane in lanes_view(scene.trace()).lanes]


def test_its_end_and_its_stop_are_a_programs() -> None:
    dead = liveness(PROGRAM.but(states={}, ended={7: ("main", "exit code 7")}).trace()).gravest
    assert dead is not None
    assert (dead.state, dead.action) == ("PROGRAM DEAD", "restart the program; its log says why it ended")
    assert dead.message.startswith("the program has exited: exit code 7")
    stopped = liveness(PROGRAM.but(states={7: ProcessState.STOPPED}).trace()).gravest
    assert stopped is not None
    assert stopped.state == "PROGRAM STOPPED"
    assert stopped.message.startswith("the program is stopped")


def of_a_program(scene: Scene) -> Scene:
    """The same threads, of a program of one process."""
    threads = [replace(one, role="main") for one in scene.threads if one.pid == 7]
    return scene.but(threads=threads, gpus=(), running=None, waiting=None, states=PROGRAM.states)


@pytest.mark.parametrize(("scene", "rule"), [(GIL, "gil-bound"), (STARVED, "run-queue-starvation")])
def test_advice_is_not_a_servers(scene: Scene, rule: str) -> None:
    (finding,) = diagnose(of_a_program(scene.but(cores=4)).trace()).findings
    assert finding.rule == rule
    told = " ".join((finding.message, *finding.evidence, finding.action))
    assert not [word for word in ("server", "token", "engine") if word in told.lower()], told
