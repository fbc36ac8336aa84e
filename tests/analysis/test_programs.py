"""Advice in the words of what the captured program is written in."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop.analysis.kernels.family_shares import other_kinds
from llmtop.analysis.kernels.programs import COMPILED, Program, Words, program_of
from llmtop.analysis.rules.base import Rule
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.rules.report_rules import RULES
from llmtop.model import Trace
from llmtop.parsers.registry import load
from tests.kernel_traces import SAMPLES, TIMELINE, Launch, report
from tests.nsys_capture import US, Capture
from tests.nsys_scenes import SCENES

ATEN = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
JARGON = (
    ".item()",
    "torch",
    "pin_memory",
    "vLLM",
    "VLLM",
    "non_blocking",
    "enforce-eager",
    "scaled_dot",
    "GIL",
    "Triton",
)
"""What only authors of PyTorch programs can follow."""


@pytest.mark.parametrize(
    ("names", "command", "program"),
    [
        (("compute_x_278_gpu", "compute_z_334_gpu", "reductions_871_gpu__red"), "", Program.DIRECTIVES),
        (("nvkernel_step_F1L20_2",), "./solve", Program.DIRECTIVES),
        (("__omp_offloading_10302_b_main_l12",), "", Program.DIRECTIVES),
        ((ATEN, "step"), "", Program.PYTORCH),
        (("step",), "/opt/venv/bin/python3 serve.py", Program.PYTORCH),
        (("step",), "torchrun --nproc_per_node=2 train.py", Program.PYTORCH),
        (("step",), "./pythonesque --in torchrun.txt", Program.OTHER),
        (("matmul_gpu", "step_gpu"), "./solve", Program.OTHER),
        (("cupy_multiply__float64", "gemv2T_kernel_val"), "python power_iteration.py", Program.OTHER),
        (("loop_add_fusion_3", "nvjet_tst"), "python3 train.py", Program.OTHER),
        (("cupy_copy", ATEN), "python3 both.py", Program.PYTORCH),
    ],
)
def test_names_and_the_command_line_tell_what_a_program_is(
    names: tuple[str, ...], command: str, program: Program
) -> None:
    made = report(*map(Launch, names), counted=False, command=command)
    assert program_of(replace(made, origin=replace(made.origin, kind="nsys-sqlite"))) is program


def test_ranges_of_pytorch_tell_it(tmp_path: Path) -> None:
    capture = Capture()
    capture.kernel(0, US, capture.call("cudaLaunchKernel", 0, 10))
    assert program_of(capture.trace(tmp_path)) is Program.OTHER
    capture.nvtx("aten::copy_, op_id = 9", 0, US)
    (tmp_path / "2").mkdir()
    assert program_of(capture.trace(tmp_path / "2")) is Program.PYTORCH


def advice(trace: Trace, rule: str) -> str:
    return next(finding.action for finding in diagnose(trace).findings if finding.rule == rule)


@pytest.mark.parametrize(
    ("scene", "rule", "words"),
    [
        ("a sync per kernel", "sync-stalls", ("no .item()", "an async clause", "neither copied")),
        ("pageable copies", "blocking-copies", ("pin_memory=True", "-gpu=pinned", "cudaHostRegister")),
        ("launch-bound", "launch-gaps", ("--enforce-eager", "async clauses", "cudaStreamBeginCapture")),
    ],
)
def test_advice_is_in_the_words_of_the_program(
    scene: str, rule: str, words: tuple[str, str, str], tmp_path: Path
) -> None:
    made = SCENES[scene].make().trace(tmp_path)
    assert made.kernels is not None
    names = (ATEN,), ("step_12_gpu",), ("step",)
    said = [advice(replace(made, kernels=replace(made.kernels, names=one, functions=one)), rule) for one in names]
    assert [word in text for word, text in zip(words, said, strict=True)] == [True] * 3
    assert not [word for word in JARGON for text in said[1:] if word in text]


def test_a_real_capture_of_pytorch_is_told_so() -> None:
    assert program_of(load(TIMELINE)) is Program.PYTORCH


def test_a_real_capture_of_openacc_is_told_so() -> None:
    path = SAMPLES / "public" / "NCAR__GPU_workshop__miniweather_baseline.sqlite"
    if not path.exists():
        pytest.skip("the public captures are not here")
    assert program_of(load(path)) is Program.DIRECTIVES


INDUCTOR = "triton_poi_fused_add_mul_3"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_torch_compile_is_no_advice_where_it_is_used(rule: Rule) -> None:
    """Every text that says to use it has another one for captures with its kernels."""
    words = [one for one in vars(inspect.getmodule(rule) or rule).values() if isinstance(one, Words)]
    with_it, without = (
        report(Launch(ATEN), Launch(name), counted=False, command="python3 a.py") for name in (INDUCTOR, ATEN)
    )
    for one in words:
        if "torch.compile" in one.pytorch:
            assert COMPILED in one.of(with_it)
            assert one.of(with_it).count("torch.compile") == 1
        assert one.of(without) == one.pytorch


def constants(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that are said whatever the program: neither documentation nor what cites or recognises."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.keyword) and node.arg in ("pytorch", "compiled"):
            continue
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == "source" for to in node.targets):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        yield from constants(node)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_no_rule_speaks_of_pytorch_but_to_its_authors(rule: Rule) -> None:
    path = Path(inspect.getfile(rule))  # type: ignore[arg-type]
    said = list(constants(ast.parse(path.read_text(encoding="utf-8"))))
    assert said, path
    assert not [(word, text) for text in said for word in JARGON if word in text]


def test_the_note_on_kernels_of_no_family_names_the_programs_own_way_to_mark_them() -> None:
    made = [report(Launch("step", 1000.0), command=f"/opt/ncu {program}") for program in ("./solve", "python3 run.py")]
    assert [("nvtxRangePush" in other_kinds(one), "torch" in other_kinds(one)) for one in made] == [
        (True, False),
        (False, True),
    ]
