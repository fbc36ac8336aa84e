"""What is made of a .ncu-rep: the table, the session, and the details of a kernel."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop.errors import FileError
from llmtop.model import Instances, Severity, Unknown, What
from llmtop.parsers.ncu_rep.details import StoredValues, plain_message, value_of
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import (
    DESCRIPTOR,
    Device,
    Instance,
    Launch,
    Metric,
    Nvtx,
    NvtxDomain,
    NvtxRange,
    NvtxStack,
    NvtxStarted,
    NvtxStartedRange,
    NvtxThread,
    Process,
    Rule,
    RuleBody,
    RuleItem,
    RuleMessage,
    Session,
    Speedup,
    System,
    Value,
    Version,
)
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import DECODE, LADDER, ROOT, kernel, metric, report

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import KernelDetails, KernelTable, Trace

NAMES = (b"gpu__time_duration.sum", b"dram__bytes.sum.per_second", b"device__attribute_device_index", b"a_ratio.ratio")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def opened(folder: Path, *launches: Launch, **options: Any) -> Trace:
    path = folder / "made.ncu-rep"
    path.write_bytes(report(*launches, **{"names": NAMES, **options}))
    return load(path)


@given(
    st.one_of(
        st.builds(Value, float64=st.floats()),
        st.builds(Value, float32=st.floats(width=32)),
        st.builds(Value, uint64=st.integers(0, (1 << 64) - 1)),
        st.builds(Value, uint32=st.integers(0, (1 << 32) - 1)),
        st.builds(Value, text=st.binary(max_size=20)),
        st.builds(Value),
    )
)
def test_a_value_is_the_same_read_from_its_bytes_as_from_its_message(value: Value) -> None:
    assert StoredValues()[value.SerializeToString()] == value_of(value)


def table(trace: Trace) -> KernelTable:
    assert trace.kernels is not None
    return trace.kernels


def details(trace: Trace) -> KernelDetails:
    found = table(trace).details
    assert found is not None
    return found


def test_ladder_table() -> None:
    trace = load(LADDER)
    kernels = table(trace)
    assert [kernels.functions[i] for i in kernels.name_id] == [
        "sgemm_naive",
        "sgemm_coalesced",
        "sgemm_smem",
        "smem_conflict",
        "stream_copy",
    ]
    assert kernels.name(0) == "sgemm_naive(int, const float *, const float *, float *)"
    assert [column[0] for column in kernels.grid] == [64, 64, 1]
    assert [column[0] for column in kernels.block] == [32, 32, 1]
    assert list(kernels.start_ns) == [-1] * 5
    assert trace.origin.kind == "ncu-rep"
    assert trace.origin.path == str(LADDER)
    assert trace.origin.tool_version.startswith("2025.3.1.0")
    assert trace.origin.gpu == "NVIDIA H100 80GB HBM3"
    assert "--set full" in str(trace.origin.facts["command"])
    assert trace.why_missing(What("timeline")) is not None


def test_decode_step_has_its_nvtx_range_on_every_kernel() -> None:
    trace = load(DECODE)
    assert len(table(trace)) == 60
    assert {details(trace).ranges(i) for i in range(60)} == {("decode",)}


def test_metrics_have_values_and_units(folder: Path) -> None:
    launch = kernel(metrics=[metric(0, float64=1500.0), metric(1, float32=0.5), metric(2, uint64=2**63)])
    report = details(opened(folder, launch))
    assert {name: (value, report.unit(name)) for name, value in report.metrics(0).items()} == {
        "gpu__time_duration.sum": (1500.0, "ns"),
        "dram__bytes.sum.per_second": (0.5, "bytes/s"),
        "device__attribute_device_index": (2**63, ""),
    }


def test_not_a_number_is_not_a_metric(folder: Path) -> None:
    launch = kernel(metrics=[metric(0, float64=math.nan), metric(3, float64=math.inf)])
    trace = opened(folder, launch)
    assert dict(details(trace).metrics(0)) == {}
    assert math.isnan(table(trace).duration_ns[0])
    missing = trace.why_missing(What("gpu__time_duration.sum"))
    assert missing is not None
    assert missing.reason.startswith("1 of 1 kernels")
    assert "--section SpeedOfLight" in missing.remedy


def test_metric_without_a_name_costs_only_itself(folder: Path) -> None:
    launch = kernel(metrics=[metric(4_000_000, float64=1.0), metric(0, float64=7.0)])
    assert list(details(opened(folder, launch)).metrics(0)) == ["gpu__time_duration.sum"]


def test_metrics_are_found_wherever_a_kernel_has_them(folder: Path) -> None:
    orders: list[list[int]] = [[0, 1, 2], [0, 1, 2], [2, 1, 0], [1], [1, 0]]
    launches = [kernel(metrics=[metric(i, float64=float(i + 10)) for i in order]) for order in orders]
    kernels = table(opened(folder, *launches))
    assert [None if math.isnan(ns) else ns for ns in kernels.duration_ns] == [10.0, 10.0, 10.0, None, 10.0]
    assert list(kernels.device) == [12, 12, 12, -1, -1]


def test_the_only_gpu_of_a_session_is_that_of_all_its_kernels(folder: Path) -> None:
    one, another = Device(index=3, name=b"NVIDIA H100"), Device(index=4, name=b"NVIDIA H100")
    alone = opened(folder, kernel(), session=Session(devices=[one]))
    assert (list(table(alone).device), alone.origin.gpu) == ([3], "NVIDIA H100")
    assert list(table(opened(folder, kernel(), session=Session(devices=[one, another]))).device) == [-1]


def test_a_metric_without_a_value_costs_only_itself(folder: Path) -> None:
    launch = kernel(metrics=[Metric(name=1), metric(0, float64=7.0), Metric(name=3), metric(2, uint64=0)])
    stored = details(opened(folder, launch)).metrics(0)
    assert stored == {"gpu__time_duration.sum": 7.0, "device__attribute_device_index": 0}


def test_unset_launch_values_are_unknown(folder: Path) -> None:
    kernels = table(opened(folder, Launch()))
    assert kernels.name(0) == "(unnamed kernel)"
    assert [column[0] for column in (*kernels.grid, *kernels.block)] == [-1] * 6
    assert (kernels.stream[0], kernels.device[0]) == (-1, -1)


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (b"silu[lambda(float) (instance 1)]", "silu[lambda(float) (instance 1)]"),
        (b"[/b][@click=app.quit]x", "[/b][@click=app.quit]x"),
        (b"a\x1b[2Jb", "a␛[2Jb"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("‮abc".encode(), "\ufffdabc"),
        (b"k" * 10_000, "k" * 10_000),
    ],
    ids=["lambda", "markup", "escape", "not UTF-8", "right to left", "10 kB"],
)
def test_hostile_names_are_kept_and_harmless(folder: Path, stored: bytes, shown: str) -> None:
    kernels = table(opened(folder, kernel(stored)))
    assert kernels.functions == (shown,)
    assert kernels.name(0) == f"{shown}(float *)"


def test_equal_names_are_stored_once(folder: Path) -> None:
    kernels = table(opened(folder, kernel(b"a"), kernel(b"b"), kernel(b"a")))
    assert kernels.functions == ("a", "b")
    assert list(kernels.name_id) == [0, 1, 0]


def test_instances_pair_keys_with_values(folder: Path) -> None:
    launch = kernel(metrics=[metric(0, float64=3.0), metric(1, float64=1.0)])
    launch.metrics[0].instances.extend(
        Instance(key=Value(text=key), value=Value(float64=value))
        for key, value in ((b"FFMA", 1.0), (b"LDG", math.nan), (b"STG", 2.0))
    )
    launch.metrics[1].instances.append(Instance(value=Value(uint64=5)))
    found = details(opened(folder, launch))
    opcodes = found.instances(0, "gpu__time_duration.sum")
    assert isinstance(opcodes, Instances)
    assert (opcodes.keys, opcodes.values) == (("FFMA", "STG"), (1.0, 2.0))
    keyless = found.instances(0, "dram__bytes.sum.per_second")
    assert isinstance(keyless, Instances)
    assert (keyless.keys, keyless.values) == ((), (5,))


def test_absent_instances_say_why(folder: Path) -> None:
    found = details(opened(folder, kernel(metrics=[metric(0, float64=3.0)])))
    assert found.instances(0, "gpu__time_duration.sum") == Unknown(
        "gpu__time_duration.sum was not collected per instance"
    )
    assert found.instances(0, "inst_executed") == Unknown(
        "inst_executed was not collected", "add --metrics inst_executed"
    )


def test_ranges_are_those_of_the_process_and_the_launching_thread(folder: Path) -> None:
    def ranges(domain: int, *names: bytes) -> NvtxStack:
        return NvtxStack(domain=domain, ranges=[NvtxRange(name=name) for name in names])

    nvtx = Nvtx(
        domains=[NvtxDomain(id=0, name=b"<default domain>"), NvtxDomain(id=4, name=b"NCCL")],
        threads=[
            NvtxThread(id=1, stacks=[ranges(0, b"another thread")]),
            NvtxThread(id=2, stacks=[ranges(0, b"step", b"attention"), ranges(4, b"all-reduce")]),
        ],
        started=[NvtxStarted(domain=4, ranges=[NvtxStartedRange(id=1, name=b"request 7")])],
    )
    trace = opened(folder, kernel(thread_id=2, nvtx=nvtx))
    assert details(trace).ranges(0) == ("NCCL@request 7", "step", "attention", "NCCL@all-reduce")


def test_rules_without_a_result_are_left_out(folder: Path) -> None:
    def rule(name: bytes, *messages: RuleMessage) -> Rule:
        return Rule(id=name, name=name, body=RuleBody(items=[RuleItem(message=message) for message in messages]))

    advice = RuleMessage(text=b"see\n@section:Occupancy:Occupancy@", type=4, title=b"Wait Stalls")
    spoken = rule(b"CPIStall", advice, RuleMessage(type=1), RuleMessage(text=b"fine", type=1, title=b"x"))
    (result,) = details(opened(folder, kernel(rules=[rule(b"Silent"), spoken]))).rules(0)
    assert result.id == "CPIStall"
    assert result.messages == (("optimization", "see Occupancy"), ("ok", "fine"))
    assert result.titled == (("optimization", "Wait Stalls: see Occupancy"), ("ok", "x: fine"))
    assert result.advised == "CPIStall (Wait Stalls)", "of what it advises"


def test_messages_and_speedups_of_rules_are_of_their_types(folder: Path) -> None:
    items = [RuleItem(message=RuleMessage(text=b"said", type=kind)) for kind in range(6)]
    items += [RuleItem(speedup=Speedup(type=kind, percent=10.0 * kind)) for kind in range(4)]
    items.append(RuleItem(speedup=Speedup(type=1, percent=math.nan)))
    (result,) = details(opened(folder, kernel(rules=[Rule(id=b"All", body=RuleBody(items=items))]))).rules(0)
    severities = [severity for severity, _ in result.messages]
    assert severities == ["ok", "ok", "warning", "error", "optimization", "ok"]
    assert result.speedups == (("local", 0.0), ("local", 10.0), ("global", 20.0), ("local", 30.0))


@pytest.mark.parametrize(
    ("markup", "plain"),
    [
        ("a @url:Guide:https://docs.nvidia.com/x/index.html#a@ b", "a Guide b"),
        ("@sass:7f00:LDG@ and @source:a.cu,3:line 3@", "LDG and line 3"),
        ("mail@example and @unknown:x:y@", "mail@example and @unknown:x:y@"),
        ("@section:Occupancy@", "Occupancy"),
    ],
)
def test_plain_message(markup: str, plain: str) -> None:
    assert plain_message(markup) == plain


def test_session_facts_hide_secrets(folder: Path) -> None:
    session = Session(
        created_s=1_795_223_854,
        target=System(os=b"Linux", name=b"node7", cpu=b"Xeon"),
        devices=[Device(index=0, name=b"NVIDIA H100"), Device(index=1, name=b"NVIDIA A100")],
        versions=[
            Version(what=b"CUDA Version", version=b"13.0"),
            Version(what=b"Nsight Compute Target", version=b"2025.3.1.0"),
        ],
        command_line=b"ncu vllm serve m --api-key sk-123",
    )
    launch = kernel(metrics=[metric(2, uint64=1)])
    origin = opened(folder, launch, session=session).origin
    assert (origin.tool_version, origin.gpu) == ("2025.3.1.0", "NVIDIA A100")
    assert origin.facts == {
        "command": "ncu vllm serve m --api-key [redacted]",
        "captured": "2026-11-21T01:17:34+00:00",
        "host": "node7",
        "os": "Linux",
        "cpu": "Xeon",
        "CUDA Version": "13.0",
        "Nsight Compute Target": "2025.3.1.0",
    }


def test_process_names_are_facts() -> None:
    assert load(LADDER).origin.facts["processes"] == "/srv/llm/ladder (489)"
    assert Process.DESCRIPTOR.full_name == "llmtop.ncu_rep.Process"


def test_other_results_are_counted(folder: Path) -> None:
    (issue,) = opened(folder, kernel(), other_results=3).issues
    assert (issue.severity, issue.code, issue.count) == (Severity.WARNING, "ncu-rep.other-results", 3)


def test_report_without_kernels_says_so(folder: Path) -> None:
    with pytest.raises(FileError, match="holds no kernels"):
        opened(folder)
    with pytest.raises(FileError, match="holds 2 range or graph results and no kernels"):
        opened(folder, other_results=2)


def test_details_outlive_the_file(folder: Path) -> None:
    trace = opened(folder, kernel(metrics=[metric(0, float64=1.0)]))
    (folder / "made.ncu-rep").unlink()
    assert details(trace).metrics(0)["gpu__time_duration.sum"] == 1.0


def test_file_cut_while_open_is_an_error_in_words(folder: Path) -> None:
    trace = opened(folder, kernel())
    (folder / "made.ncu-rep").write_bytes(b"NVR\0")
    with pytest.raises(FileError, match="became shorter while it was read"):
        details(trace).metrics(0)


@pytest.mark.oracle
def test_generated_messages_are_those_of_the_proto(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="needs protoc: `make test-oracles` installs it")
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    out = tmp_path / "set"
    proto = ROOT / "parsers" / "ncu_rep" / "ncu_rep.proto"
    assert protoc.main(["protoc", f"-I{proto.parent}", f"--descriptor_set_out={out}", proto.name]) == 0
    (fresh,) = FileDescriptorSet.FromString(out.read_bytes()).file
    for kind in fresh.message_type:
        for field in kind.field:
            field.ClearField("json_name")  # protoc adds them to sets only
    assert FileDescriptorProto.FromString(DESCRIPTOR.serialized_pb) == fresh, "run parsers/ncu_rep/generate.py"
