"""Published peaks, and the words for clock reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import vocabulary as v
from llmtop.analysis.gpus.models import (
    GPUS,
    GpuModel,
    PeakCheck,
    compute_practical,
    dram_peak,
    dram_practical,
    find_gpu,
    precision_of,
)
from llmtop.model import Quantity, Unknown

FLOP_PER_CLOCK_AND_SM = {"Volta": 1024, "Turing": 1024, "Hopper": 4096, "B200": 8192, "A100": 2048, "A30": 2048}
"""Dense FP16 tensor FLOP with FP32 accumulation."""


@pytest.mark.parametrize(
    ("nvml_name", "row"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
    ],
)
def test_a_gpu_is_found_by_its_nvml_name(nvml_name: str, row: str) -> None:
    gpu = find_gpu(nvml_name)
    assert isinstance(gpu, GpuModel)
    assert gpu.name == row


@pytest.mark.parametrize(
    "nvml_name",
    [
        "NVIDIA A10G",
        "NVIDIA H20",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "",
        "[/b]",
    ],
)
def test_a_gpu_that_is_not_in_the_table_is_not_taken_for_another(nvml_name: str) -> None:
    why = find_gpu(nvml_name)
    assert isinstance(why, Unknown)
    assert nvml_name in why.reason
    assert why.remedy


@given(st.text())
def test_any_name_gives_a_row_or_a_reason(nvml_name: str) -> None:
    assert isinstance(find_gpu(nvml_name), GpuModel | Unknown)


@pytest.mark.parametrize("gpu", [gpu for gpu in GPUS if PeakCheck.ARITHMETIC in gpu.checks], ids=lambda gpu: gpu.name)
def test_rows_marked_as_arithmetic_follow_from_sms_and_clock(gpu: GpuModel) -> None:
    per_clock = next(
        (
            FLOP_PER_CLOCK_AND_SM[key]
            for key in (gpu.name[:4].strip(), gpu.architecture)
            if key in FLOP_PER_CLOCK_AND_SM
        ),
        None,
    )
    if per_clock is None:  # parts with 512 or 1024, and GB200 and B300, whose name has B200's rate
        per_clock = 512 if gpu.name.startswith("RTX") and gpu.name[4:].isdigit() else 1024
        per_clock = 8192 if gpu.name in ("GB200", "B300") else per_clock
    assert gpu.sm * per_clock * gpu.boost_mhz * 1e6 == pytest.approx(gpu.peaks["fp16"], rel=0.01)


def test_every_row_is_complete() -> None:
    assert len({gpu.name for gpu in GPUS}) == len(GPUS)
    for gpu in GPUS:
        assert gpu.source
        assert gpu.checks
        assert gpu.dram > 1e11
        assert gpu.peaks["fp32"] > 0
        assert gpu.peaks["fp16"] > gpu.peaks["fp32"]


def test_provisional_figures_say_so() -> None:
    b300 = find_gpu("NVIDIA B300 SXM6 AC")
    assert isinstance(b300, GpuModel)
    assert "conflict" in b300.provenance


def test_tf32_is_half_of_bf16() -> None:
    h100 = find_gpu("NVIDIA H100 80GB HBM3")
    assert isinstance(h100, GpuModel)
    assert h100.peaks["tf32"] == 494.7e12
    assert h100.peaks["fp64"] == pytest.approx(33.45e12)


@pytest.mark.parametrize(
    ("bits", "mhz", "published"),
    [(5120, 2619, 3350e9), (5120, 1593, 2039e9), (384, 10501, 1008e9), (256, 5001, 320e9), (4096, 877, 900e9)],
)
def test_nvml_gives_the_published_dram_peak(bits: int, mhz: int, published: float) -> None:
    peak = dram_peak({"bus_width_bits": bits, "max_memory_mhz": mhz}, Unknown("not listed"))
    assert isinstance(peak, Quantity)
    assert peak.value == pytest.approx(published, rel=0.025)
    assert peak.source.startswith("NVML")


@pytest.mark.parametrize(
    ("bits", "mhz", "is_said"), [(1, 1, True), (0, 2619, False), (5120, 0, False), (-1, 2619, False), (5120, -1, False)]
)
def test_a_bus_of_no_width_is_not_nvmls_word(bits: int, mhz: int, is_said: bool) -> None:
    peak = dram_peak({"bus_width_bits": bits, "max_memory_mhz": mhz}, Unknown("not listed"))
    known = Quantity(250_000.0, "bytes/s", "NVML: 1 bit x 1 MHz x 2")
    assert peak == (known if is_said else Unknown("NVML gives no memory bus width and clock"))


def test_without_nvmls_word_the_table_gives_the_dram_peak() -> None:
    h100 = find_gpu("NVIDIA H100 80GB HBM3")
    peak = dram_peak({"bus_width_bits": Unknown("not said"), "max_memory_mhz": 2619}, h100)
    assert isinstance(peak, Quantity)
    assert peak.value == 3350e9
    assert "H100 page" in peak.source


def test_without_either_there_is_no_dram_peak() -> None:
    assert isinstance(dram_peak({}, find_gpu("unheard of")), Unknown)


def test_practical_roofs_exist_only_where_somebody_measured() -> None:
    h100, l4 = find_gpu("NVIDIA H100 80GB HBM3"), find_gpu("NVIDIA L4")
    assert isinstance(h100, GpuModel)
    assert isinstance(l4, GpuModel)
    assert compute_practical(h100, "bf16") == pytest.approx(794.5e12, rel=0.001)
    assert compute_practical(l4, "bf16") is None
    assert dram_practical(h100, 3352e9) == pytest.approx(3067e9, rel=0.001)
    assert dram_practical(l4, 300e9) is None


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("bfloat16", "bf16"),
        ("torch.float16", "fp16"),
        ("half", "fp16"),
        ("FP8", "fp8"),
        ("float8-e4m3fn", "fp8"),
        ("float32", "fp32"),
        ("nvfp4", "fp4"),
    ],
)
def test_a_servers_dtype_is_a_precision(dtype: str, precision: str) -> None:
    assert precision_of(dtype) == precision


@pytest.mark.parametrize("dtype", ["auto", "awq", "", 16, "[red]"])
def test_a_dtype_that_says_nothing_is_unknown(dtype: str | int) -> None:
    assert isinstance(precision_of(dtype), Unknown)


def test_an_unknown_dtype_keeps_its_reason() -> None:
    why = Unknown("the server does not say")
    assert precision_of(why) is why


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, ()),
        (1, ("idle",)),
        (4, ("power cap",)),
        (0x48, ("hardware slowdown", "too hot (hardware slows it)")),
        (0x8000_0000_0000_0000, ("unknown reason 0x8000000000000000",)),
    ],
)
def test_clock_reasons_in_words(mask: float, words: tuple[str, ...]) -> None:
    assert v.clock_reasons(mask) == words
