"""Findings on idle time: of captures with one known cause the right one, and none beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from llmtop.analysis.kernels.communication import communication
from llmtop.analysis.rules import idle
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.timeline.account import AFTER, BEFORE, IdlePart, idle_account
from llmtop.analysis.timeline.causes import Cause
from llmtop.model import Finding, Severity, Trace, What
from llmtop.parsers.registry import load
from tests.kernel_traces import SAMPLES
from tests.nsys_capture import MS, US, Capture, add_table
from tests.nsys_scenes import SCENES, Scene, allocated_in_the_loop, one_gpu_late
from tests.nsys_schemas import SCHEMAS, Schema

PUBLIC = SAMPLES / "public"
ON_TIME = {rule for scene in SCENES.values() for rule in scene.rules}
"""The rules on idle time and communication: those on kernels may have more to say of a capture."""


def found(scene: Scene, folder: Path) -> tuple[Finding, ...]:
    return diagnose(scene.make().trace(folder)).findings


@pytest.mark.parametrize("name", SCENES)
def test_a_known_cause_is_found_and_nothing_beside_it(name: str, tmp_path: Path) -> None:
    scene = SCENES[name]
    trace = scene.make().trace(tmp_path)
    findings = diagnose(trace).findings
    assert tuple(finding.rule for finding in findings) == scene.rules
    if findings:
        assert scene.says in findings[0].message
        assert findings[0].severity is (Severity.INFO if name == "no requests" else Severity.WARNING)
        assert findings[0].at_stake_ns
    advised = [finding.rule for finding in findings if "capture the step as a CUDA graph" in finding.action]
    assert advised == (["launch-gaps"] if name == "launch-bound" else []), "only for launches outside of graphs"
    held_to_its_words(trace)
    covers_each_gpu(trace)
    at_stake = [finding.at_stake_ns or 0 for finding in findings if finding.rule != "exposed-communication"]
    assert sum(at_stake) <= max(gpu.idle_ns for gpu in idle_account(trace).gpus), "one culprit for each part of it"


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_a_known_cause_is_found_in_exports_of_every_version(schema: Schema, tmp_path: Path) -> None:
    """In the oldest every cause, in each later one a part of them."""
    first = SCHEMAS.index(schema)
    scenes = dict(list(SCENES.items())[first % 3 :: 3 if first else 1])
    told = {}
    for i, (name, scene) in enumerate(scenes.items()):
        made, folder = scene.make(), tmp_path / str(i)
        folder.mkdir()
        if made.fits(schema):
            trace = made.trace(folder, schema)
            assert trace.origin.facts["schema"] == schema.version
            told[name] = diagnose(trace).findings
    assert {name: tuple(one.rule for one in found) for name, found in told.items()} == {
        name: SCENES[name].rules for name in told
    }
    words = {name: SCENES[name].says for name in told} | (
        {"no CPU": "off its CPU"} if "threadState" not in schema.tables["SCHED_EVENTS"] else {}
    )
    assert [name for name, found in told.items() if found and words[name] not in found[0].message] == []
    assert scenes.keys() - told.keys() == (
        set() if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in schema.tables else scenes.keys() & {"graphs as a whole"}
    )


def test_kernels_beside_graphs_are_told_from_those_inside(tmp_path: Path) -> None:
    _, launches = found(SCENES["graphs and kernels"], tmp_path)
    assert any("4,800 of 4,960 kernels and copies come from 40 graph launches" in one for one in launches.evidence)
    assert launches.action.startswith("take the kernels that are launched one by one into the CUDA graph")


def test_a_thread_that_feeds_several_gpus_is_to_be_several(tmp_path: Path) -> None:
    (finding,) = found(SCENES["one thread for two GPUs"], tmp_path)
    assert finding.subject == "GPUs 0, 1"
    assert "a thread or a process of its own" in finding.action
    assert any(one.startswith("GPU 0: launch call cudaLaunchKernel on GPU 1:") for one in finding.evidence)


def test_a_gpu_that_loses_less_is_named_with_its_own_numbers(tmp_path: Path) -> None:
    (finding,) = found(SCENES["one GPU's CPU later"], tmp_path)
    assert finding.subject == "GPUs 0, 1"
    assert finding.message.startswith("idle 29 % of the capture on GPU 1, 3.9 % on GPU 0: ")
    assert any(one.startswith("GPU 0: 15.6 ms, host code: 15.6 ms in 39 gaps") for one in finding.evidence)
    assert all(one.startswith(("GPU 0: ", "GPU 1: ", "at stake: ")) for one in finding.evidence)
    assert finding.evidence[-1].endswith("all of this idle time of GPU 1, which loses most")


def test_code_that_starts_when_the_gpu_is_dry_is_to_be_overlapped(tmp_path: Path) -> None:
    (finding,) = found(SCENES["Python in a range"], tmp_path)
    assert "asynchronous scheduling" in finding.action
    assert "CPU samples in this time: dict_lookup (195)" in finding.evidence, "after each step but the last"
    assert finding.next_command == "", "the samples are there already"


def test_copies_are_counted_by_their_memory(tmp_path: Path) -> None:
    (finding,) = found(SCENES["pageable copies"], tmp_path)
    assert "40 x copy HtoD (pageable), 320 MiB (nsys)" in finding.evidence
    assert "pinned" in finding.action


def test_the_rank_that_comes_last_is_named_with_how_often(tmp_path: Path) -> None:
    trace = SCENES["one GPU late"].make().trace(tmp_path)
    first, second = communication(trace)
    assert (first.exposed_ns, second.exposed_ns) == (40 * 4_000_000, 40 * 1_000_000)
    assert (first.waiting_ns, first.last, second.waiting_ns, second.last) == (40 * 3_000_000, 0, 0, 40)
    (finding,) = diagnose(trace).findings
    assert finding.at_stake_ns == first.waiting_ns, "what balance wins; the rest is sent all the same"
    assert first.exposed_waiting_ns == first.waiting_ns
    assert "comes last, of 40 operations: GPU 1 40 (nsys)" in finding.evidence
    assert "waited for: GPU 1: 120 ms (nsys)" in finding.evidence


def test_why_the_last_one_is_late_follows_from_what_it_computes(tmp_path: Path) -> None:
    (more,) = found(SCENES["one GPU late"], tmp_path)
    assert more.action.startswith("GPU 1 computes 50 % longer than GPU 0 (360 ms to 240 ms): give it less work")
    assert more.next_command.startswith("nvidia-smi -q -d CLOCK")
    assert "computing: GPU 1: 360 ms, GPU 0: 240 ms (nsys)" in more.evidence
    (tmp_path / "cpu").mkdir()
    late, own_code = found(SCENES["one GPU launched late"], tmp_path / "cpu")
    assert late.action.startswith(
        "GPU 1 is waited for longest, and computes as long as GPU 0 (240 ms): its CPU side is late"
    )
    assert late.next_command.startswith("nsys profile ")
    assert own_code.subject == "GPU 1"


def test_covered_communication_is_not_exposed(tmp_path: Path) -> None:
    for gpu in communication(SCENES["communication hidden"].make().trace(tmp_path)):
        assert (gpu.total_ns, gpu.exposed_ns) == (40 * 3_000_000, 0)


def test_one_gap_alone_is_information(tmp_path: Path) -> None:
    scene = SCENES["allocation in the loop"].make()
    calls = scene.tables["CUPTI_ACTIVITY_KIND_RUNTIME"]
    freed = scene.strings["cudaFree_v7000"]
    scene.tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = [row for row in calls if row[5] != freed][:4]
    scene.tables["CUPTI_ACTIVITY_KIND_KERNEL"] = scene.tables["CUPTI_ACTIVITY_KIND_KERNEL"][:2]
    findings = {finding.rule: finding for finding in diagnose(scene.trace(tmp_path)).findings}
    assert findings["allocation-stalls"].severity is Severity.INFO
    assert "in one gap" in findings["allocation-stalls"].message


@pytest.mark.parametrize(
    ("file", "headline", "says"),
    [
        ("brycelelbach__nsightful__power_iteration__baseline", "host-code", "range IO #"),
        ("NCAR__GPU_workshop__miniweather_baseline", "host-waits", "reads or writes files"),
        ("GindaChen__nsys-ai__mfu_2gpu_before", "host-code", "of the capture on GPU 1, 2.9 % on GPU 0"),
        ("GindaChen__nsys-ai__mfu_2gpu_after", "launch-gaps", "one by one"),
        ("GindaChen__nsys-ai__healthy_1pct", "", ""),
    ],
)
def test_public_captures_are_diagnosed_as_what_they_are(file: str, headline: str, says: str) -> None:
    path = PUBLIC / f"{file}.sqlite"
    if not path.exists():
        pytest.skip("needs ../shared/samples/public: captures of others, which are not shipped")
    findings = [finding for finding in diagnose(load(path)).findings if finding.rule in ON_TIME]
    assert (findings[0].rule if findings else "") == headline
    assert not findings or says in findings[0].message


def held_to_its_words(trace: Trace) -> None:
    """Each finding has a command that brings something new, or the reason for none, and says what its stake is of."""
    for finding in diagnose(trace).findings:
        assert bool(finding.next_command) != bool(finding.no_command), finding
        stake = [one for one in finding.evidence if one.startswith("at stake: up to ")]
        assert len(stake) == bool(finding.at_stake_ns), finding
        assert all(one.split(" of the capture: ")[1] for one in stake), finding
        if finding.next_command.startswith("nsys profile ") and finding.rule != "profiler-cost":
            assert any(
                trace.why_missing(What(what)) for what in ("CUDA calls", "OS calls", "CPU scheduling", "CPU samples")
            )


def covers_each_gpu(trace: Trace) -> None:
    """Of each GPU the culprit of most idle time between its works, from 2 % of the capture on."""
    findings = [finding for finding in diagnose(trace).findings if finding.message.startswith("idle ")]
    for gpu in idle_account(trace).gpus:
        lost: Counter[Cause] = Counter()
        for part in gpu.parts:
            if part.name not in (BEFORE, AFTER):
                lost[idle.culprit(part)] += part.ns
        for _, ns in lost.most_common(1):
            if ns >= 0.02 * (gpu.end_ns - gpu.start_ns):
                assert any(gpu.gpu in named(finding) for finding in findings), (gpu.gpu, lost)


def named(finding: Finding) -> set[str]:
    """The GPUs of a subject: "GPU 0", "GPUs 0-3, 7"."""
    runs = [run.split("-") for run in finding.subject.removeprefix("GPUs ").removeprefix("GPU ").split(", ")]
    return {f"gpu:{number}" for run in runs for number in range(int(run[0]), int(run[-1]) + 1)}


def _loading(at_ms: Iterable[int]) -> Capture:
    """A kernel of 1 ms every 10 ms for 300 ms; before those at these times their code is loaded for 5 ms."""
    made, loaded = Capture(), set(at_ms)
    for now in range(0, 300, 10):
        if now in loaded:
            made.call("cuLibraryLoadData", now * MS, now * MS + 5 * MS)
        launch = made.call("cudaLaunchKernel", now * MS + 5 * MS, now * MS + 5 * MS + 10 * US)
        made.kernel((now + 6) * MS, (now + 7) * MS, launch)
    return made


@pytest.mark.parametrize(
    ("at_ms", "begins", "late"),
    [
        (range(0, 60, 10), "warm up before what matters", "0 %"),
        (range(0, 300, 10), "keep sizes and types the same", "63 %"),
        ((0, 10, 20, 30, 200), "where it is the first use of each kernel, warm up", "20 %"),
    ],
)
def test_a_warm_up_is_advised_where_it_would_take_the_loading_away(
    at_ms: Iterable[int], begins: str, late: str, tmp_path: Path
) -> None:
    found = next(one for one in diagnose(_loading(at_ms).trace(tmp_path)).findings if one.rule == "code-loading")
    assert found.action.startswith(begins)
    assert found.evidence[0] == f"{late} of the time in such calls comes after the first third of the GPU's work (nsys)"


def test_communication_that_no_title_is_known_for_keeps_its_functions_name(tmp_path: Path) -> None:
    trace = one_gpu_late("void multimem_all_reduce_kernel<float, 16>(float *)").trace(tmp_path)
    (finding,) = [one for one in diagnose(trace).findings if one.rule == "exposed-communication"]
    assert finding.evidence[-2] == "kernels: multimem_all_reduce_kernel"


@pytest.mark.parametrize(
    ("allocate", "free", "begins"),
    [
        ("cudaMalloc", "cudaFree", "allocate once and reuse: a pool (cudaMallocAsync"),
        ("cudaHostAlloc", "cudaFreeHost", "pinned host memory is slow to allocate"),
        ("cuMemHostAlloc", "cuMemFreeHost", "pinned host memory is slow to allocate"),
    ],
)
def test_advice_on_allocations_is_of_the_memory_in_question(
    allocate: str, free: str, begins: str, tmp_path: Path
) -> None:
    trace = allocated_in_the_loop(allocate, free).trace(tmp_path)
    (finding,) = [one for one in diagnose(trace).findings if one.rule == "allocation-stalls"]
    assert finding.action.startswith(begins)
    assert "PYTORCH" not in finding.action, "nothing tells that it is PyTorch's"


@pytest.mark.parametrize(("least_ns", "is_named"), [(9_999, False), (10_000, True)])
def test_ranges_below_a_hundredth_of_what_is_lost_are_no_evidence(
    least_ns: int, is_named: bool, tmp_path: Path
) -> None:
    ranges = (("forward", 1_000_000 - least_ns), ("sample", least_ns))
    part = IdlePart(Cause.CALL, "cudaMalloc", 1_000_000, 8, 200_000, ranges=ranges)
    (account,) = idle_account(one_gpu_late().trace(tmp_path)).gpus[:1]
    told = list(idle._evidence(idle.Loss(account, part.ns, (part,), (part,)), "NVTX range"))
    assert ("sample" in told[-1]) is is_named


def _allocated_first(folder: Path, *, variable: str = "") -> Trace:
    """A context that takes 40 ms before the first kernel, then 20 kernels with 4 ms of allocation before each."""
    made = Capture()
    made.call("cudaFree", 0, 40 * MS)
    for step in range(20):
        now = 40 * MS + step * 10 * MS
        made.call("cudaMalloc", now, now + 4 * MS)
        launched = now + 4 * MS
        made.kernel(launched + 10 * US, now + 10 * MS, made.call("cudaLaunchKernel", launched, launched + 5 * US))
    path = made.write(folder / "capture.sqlite")
    if variable:
        rows = [("PROCESS_0:COMMAND", "python3"), ("PROCESS_0:ENVIRONMENT_VARIABLE", variable)]
        add_table(path, "META_DATA_CAPTURE", "name value", *rows)
    return load(path)


def test_what_comes_before_the_first_work_is_no_recurring_cost(tmp_path: Path) -> None:
    found = {one.rule: one for one in diagnose(_allocated_first(tmp_path)).findings}
    assert found["allocation-stalls"].at_stake_ns == 19 * 4 * MS
    assert "cudaFree" not in " ".join(found["allocation-stalls"].evidence)


def test_a_setting_that_the_program_has_is_not_advised(tmp_path: Path) -> None:
    variable = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    for name, told in (("A=b", True), (variable, False)):
        folder = tmp_path / name[:3]
        folder.mkdir()
        found = {one.rule: one for one in diagnose(_allocated_first(folder, variable=name)).findings}
        assert ("expandable_segments" in found["allocation-stalls"].action) is told
