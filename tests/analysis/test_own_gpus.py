"""Which of a machine's GPUs are the server's: by the driver's list, by its open files, else nobody knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmtop import ids
from llmtop.analysis.gpus.stragglers import stragglers
from llmtop.analysis.pages.header import header
from llmtop.analysis.pages.lanes import lanes_view
from llmtop.analysis.roofline.efficiency import efficiency_view
from llmtop.analysis.series.readings import own_gpus, target_gpus, why_no_gpu
from llmtop.model import Fact, Missing, Target, TargetProcess, Trace, Track, TrackKind, Unknown, UnknownKind, What
from tests.analysis.verdict_scenes import ALIVE

TARGET = Target(5, 5, "vllm", "vLLM", (TargetProcess(5, "APIServer", "python"),))
UNREAD = Unknown("its files belong to another user")


def machine(opened: Fact, *, users: dict[int, Fact] | None = None, missing: tuple[Missing, ...] = ()) -> Trace:
    """Two GPUs, at which these PIDs work; `opened` is what the server's own files say."""
    trace = ALIVE.but(gpus=(96.0, 2.0)).trace()
    tracks = {id: track for id, track in trace.tracks.items() if track.kind is not TrackKind.GPU_PROCESS}
    root = tracks[ids.process(5)]
    tracks[ids.process(5)] = replace(root, facts={**root.facts, "gpus_open": opened})
    for pid, inner in (users or {}).items():
        id = ids.gpu_process(ids.gpu(0), pid)
        tracks[id] = Track(id, TrackKind.GPU_PROCESS, "python", ids.gpu(0), {"pid": pid, "container_pid": inner})
    return replace(trace, tracks=tracks, missing=missing)


@pytest.mark.parametrize(
    ("trace", "names"),
    [
        (machine(0, users={4242: 1}), []),
        (machine(UNREAD, users={4242: 1}), []),
        (machine(UNREAD), ["gpu:0", "gpu:1"]),
        (machine(UNREAD, users={4242: Unknown("host PID 4242 is not visible")}), ["gpu:0", "gpu:1"]),
        (machine(UNREAD, missing=(Missing(What("gpu:1/processes"), Unknown("denied")),)), ["gpu:0", "gpu:1"]),
        (machine(UNREAD, users={7: 7}), ["gpu:0"]),
        (machine(0, users={7: 7}), ["gpu:0"]),
        (machine(2, users={4242: 1}), ["gpu:0", "gpu:1"]),
        (machine(2, users={7: 7}), ["gpu:0"]),
    ],
    ids=[
        "none open",
        "none listed",
        "one works, and none is listed",
        "a stranger",
        "no list",
        "listed",
        "opened since",
        "open",
        "all open, one used",
    ],
)
def test_the_servers_gpus(trace: Trace, names: list[str]) -> None:
    assert [track.id for track in target_gpus(trace, TARGET)] == names
    assert bool(own_gpus(trace)) == bool(names)
    assert (why_no_gpu(trace) is None) == bool(names)


def test_a_gpu_that_cuda_has_only_opened_is_no_straggler() -> None:
    """CUDA opens all GPUs that it sees; the server's list holds one, and the other one rests."""
    trace, target = machine(2, users={7: 7}), replace(TARGET, gpus=(0, 1))
    assert [track.id for track in target_gpus(trace, target)] == ["gpu:0"]
    assert [track.id for track in own_gpus(trace)] == ["gpu:0"]
    assert not stragglers(trace, [target_gpus(trace, target)])
    assert stragglers(trace, [target_gpus(machine(2), target)]), "it would be, if it had a part in the work"


def test_nothing_of_other_peoples_gpus_is_shown_as_the_servers() -> None:
    trace = machine(0, users={4242: 1})
    why = Unknown(
        "the server does not use this machine's 2 GPUs: no process of it has one open", kind=UnknownKind.UNUSED
    )
    assert header(trace, TARGET).gpus == why
    assert efficiency_view(trace, TARGET).mfu == why
    assert [lane.why_not for lane in lanes_view(trace, None).lanes if lane.title in ("DRAM", "GPU busy")] == [why, why]


def test_before_it_has_answered_all_may_be_its_own() -> None:
    trace = machine(0)
    loading = replace(
        trace, tracks={id: track for id, track in trace.tracks.items() if track.kind is not TrackKind.SERVER}
    )
    assert len(target_gpus(loading, TARGET)) == 2
    assert why_no_gpu(loading) is None


def test_without_a_server_gpus_are_the_machines() -> None:
    assert len(target_gpus(machine(0), None)) == 2
