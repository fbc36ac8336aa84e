"""What GPUs can do at most, as published, and what their clock reasons mean.

A peak here is dense (no sparsity) and for the whole GPU. The DRAM peak is better taken from what NVML says of the very
GPU (`dram_peak`): boards of one name differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import Quantity, Unknown

if TYPE_CHECKING:
    from llmtop.model import Fact


class PeakCheck(StrEnum):
    """How a row's peaks were checked."""

    ARITHMETIC = "arithmetic"
    """SMs x FLOP per clock and SM x clock, and bus x memory clock, give the published figures."""
    COPY = "copy"
    """Read in a copy of the maker's figures."""
    CONFLICT = "conflict"
    """Sources differ; the row takes the maker's."""
    UNVERIFIED = "unverified"


@frozen
class GpuModel:
    """One GPU's published figures.

    Attributes:
        match: Names that NVML gives, as runs of words.
        sm: Streaming multiprocessors; 0 where the sources do not say.
        boost_mhz: The SM clock at which `peaks` are published; 0 where the sources do not say.
        peaks: FLOP/s (integer: OP/s) by precision: "bf16", "fp8", "fp32" (CUDA cores), "fp64_tensor" ...
        dram: Bytes per second.
        practical: The share of a peak that known matrix multiplications reach, by precision.
    """

    name: str
    match: tuple[str, ...]
    architecture: str
    sm: int
    boost_mhz: int
    peaks: Mapping[str, float]
    dram: float
    checks: tuple[PeakCheck, ...]
    source: str
    practical: Mapping[str, float] = field(default_factory=dict)

    @property
    def provenance(self) -> str:
        """Where the peaks are from and how sure they are, for the screen."""
        return f"{self.source}; {', '.join(self.checks)}"


PRACTICAL_SOURCE = "largest matrix-multiplication rate reported in stas00/ml-engineering (MAMF)"
_H100_DRAM_SHARE = 0.915
"""A reduction, which only reads, on an H100 SXM: 3068 of 3352 GB/s (docs/gpu-checks.md)."""

# Columns: name | NVML names | architecture | SMs | boost MHz | TFLOP/s | GB/s | check | source.
# TFLOP/s (TOP/s for integers) are of fp32, bf16, fp16, fp8, int8, fp4; fp16 and bf16 accumulate in fp32.
# The boost clocks of GB200 and B300 are what their bf16 peak needs at 8192 FLOP per clock and SM.
# "-" is "has none, or no source".
_TABLE = """
V100 SXM2        | Tesla V100-SXM2;Tesla V100-SXM3  | Volta     |  80 | 1530 | 15.7     - 125    -      62.8   -     |  900 | A+S | NVIDIA V100 datasheet
V100 PCIe        | Tesla V100-PCIE                  | Volta     |  80 | 1380 | 14       - 112    -      56     -     |  900 | A   | NVIDIA V100 datasheet
T4               | Tesla T4                         | Turing    |  40 | 1590 | 8.1      - 65     -      130    -     |  320 | A+S | NVIDIA T4 datasheet
A10              | A10                              | Ampere    |  72 | 1695 | 31.2   125 125    -      250    -     |  600 | A   | NVIDIA A10 datasheet
A30              | A30                              | Ampere    |  56 | 1440 | 10.3   165 165    -      330    -     |  933 | A+U | NVIDIA A30 datasheet
A40              | A40                              | Ampere    |  84 | 1740 | 37.4 149.7 149.7  -      299.3  -     |  696 | A+U | NVIDIA A40 datasheet
A100 40GB        | A100-SXM4-40GB;A100-PCIE-40GB    | Ampere    | 108 | 1410 | 19.5   312 312    -      624    -     | 1555 | A+S | NVIDIA A100 page
A100 80GB SXM    | A100-SXM4-80GB;A100-SXM-80GB     | Ampere    | 108 | 1410 | 19.5   312 312    -      624    -     | 2039 | A+S | NVIDIA A100 page
A100 80GB PCIe   | A100 80GB PCIe                   | Ampere    | 108 | 1410 | 19.5   312 312    -      624    -     | 1935 | A+S | NVIDIA A100 page
RTX A6000        | RTX A6000                        | Ampere    |  84 | 1800 | 38.7 154.8 154.8  -      309.7  -     |  768 | A+S | NVIDIA RTX A6000 datasheet
RTX 3090         | GeForce RTX 3090                 | Ampere    |  82 | 1695 | 35.6  71.2 71.2   -      284.7  -     |  936 | A+S | NVIDIA GA102 whitepaper
L4               | L4                               | Ada       |  58 | 2040 | 30.3   121 121    242.5  242.5  -     |  300 | A+S | NVIDIA L4 datasheet, sparse figures halved
L40S             | L40S                             | Ada       | 142 | 2490 | 91.6   362 362    733    733    -     |  864 | A+S | NVIDIA L40S datasheet
RTX 6000 Ada     | RTX 6000 Ada                     | Ada       | 142 | 2505 | 91.1 364.2 364.2  728.5  728.5  -     |  960 | A+U | NVIDIA RTX 6000 Ada datasheet
RTX 4090         | GeForce RTX 4090                 | Ada       | 128 | 2520 | 82.6 165.2 165.2  330.3  660.6  -     | 1008 | A+S | NVIDIA Ada whitepaper
RTX 5090         | GeForce RTX 5090                 | Blackwell | 170 | 2407 | 104.8 209.5 209.5 419    838    1676  | 1792 | A+S | NVIDIA RTX Blackwell whitepaper, sparse figures halved
RTX PRO 6000     | RTX PRO 6000 Blackwell Workstation Edition | Blackwell | 188 | 2617 | 125 503.8 503.8 1007 1007 2015 | 1792 | A+S | NVIDIA RTX PRO 6000 Blackwell datasheet, sparse fp4 (4000) halved, the others by 188 SMs x 1024 FLOP at 2617 MHz
H100 PCIe        | H100 PCIe                        | Hopper    | 114 | 1620 | 51.2 756.5 756.5  1513   1513   -     | 2000 | A+S | NVIDIA H100 page
H100 SXM         | H100 80GB HBM3                   | Hopper    | 132 | 1830 | 66.9 989.4 989.4  1978.9 1978.9 -     | 3350 | A+S | NVIDIA H100 page
H100 NVL         | H100 NVL                         | Hopper    | 132 | 1545 | 60   835.5 835.5  1671   1671   -     | 3938 | A+S | NVIDIA H100 page
H200 SXM         | H200                             | Hopper    | 132 | 1830 | 66.9 989.4 989.4  1978.9 1978.9 -     | 4800 | A+S | NVIDIA H200 page
H200 NVL         | H200 NVL                         | Hopper    | 132 | 1545 | 60   835.5 835.5  1671   1671   -     | 4800 | A+U | NVIDIA H200 page
GH200 96GB       | GH200 480GB;GH200 96GB           | Hopper    | 132 | 1830 | 66.9 989.4 989.4  1978.9 1978.9 -     | 4000 | A+S | NVIDIA GH200 page
GH200 144GB      | GH200 144G;GH200 144GB           | Hopper    | 132 | 1830 | 66.9 989.4 989.4  1978.9 1978.9 -     | 4900 | S+U | NVIDIA GH200 page
B100             | B100                             | Blackwell |   - |    - | 60    1750 1750   3500   3500   7000  | 8000 | S   | announced figures
B200             | B200                             | Blackwell | 148 | 1850 | 75    2250 2250   4500   4500   9000  | 7672 | A+S+C | NVIDIA Blackwell brief (HGX B200, DRAM 7.7 TB/s); DRAM by what its driver says, 7680 bit x 3996 MHz x 2 (pytorch/ao pull request 4002); NVIDIA's HGX page says 8
GB200            | GB200                            | Blackwell | 152 | 2008 | 80    2500 2500   5000   5000   10000 | 8000 | A+S+C | NVIDIA GB200 NVL72 page; others give the HGX B200's 2250 for bf16 and 7.7 TB/s
B300             | B300                             | Blackwell | 148 | 1856 | 75    2250 2250   4500   150    13125 | 8000 | S+C | NVIDIA Blackwell brief; fp4 (13 to 15 PFLOP/s), int8 (150 or 4500) and DRAM (7.7 or 8 TB/s) differ by source
GB300            | GB300                            | Blackwell |   - |    - | 80    2500 2500   5000   165    15000 | 8000 | S+U | NVIDIA GB300 NVL72 page
"""  # noqa: E501  (one row a line reads as the table that it is)
_COLUMNS = ("fp32", "bf16", "fp16", "fp8", "int8", "fp4")
_MARKS = {"A": PeakCheck.ARITHMETIC, "S": PeakCheck.COPY, "C": PeakCheck.CONFLICT, "U": PeakCheck.UNVERIFIED}
_PRACTICAL = {
    "A100 80GB SXM": {"bf16": 0.869},
    "H100 SXM": {"bf16": 0.803, "fp8": 0.709},
    "H200 SXM": {"fp8": 0.734},
    "GH200 96GB": {"bf16": 0.838},
    "B200": {"bf16": 0.776, "fp8": 0.763},
    "B300": {"bf16": 0.786},
    "GB200": {"bf16": 0.729},
}
_FP64_PER_FP32 = {"Volta": 1 / 2, "Hopper": 1 / 2}
"""FP64 lanes per FP32 lane where all chips of the architecture agree (CUDA C++ Programming Guide, throughput table)."""


def _row(line: str) -> GpuModel:
    name, match, architecture, sm, boost, peaks, dram, marks, source = (cell.strip() for cell in line.split("|"))
    published = {
        precision: float(value) * 1e12 for precision, value in zip(_COLUMNS, peaks.split(), strict=True) if value != "-"
    }
    return GpuModel(
        name,
        tuple(match.split(";")),
        architecture,
        0 if sm == "-" else int(sm),
        0 if boost == "-" else int(boost),
        published | _derived(architecture, published),
        float(dram) * 1e9,
        tuple(_MARKS[mark] for mark in marks.split("+")),
        source,
        _PRACTICAL.get(name, {}),
    )


def _derived(architecture: str, peaks: Mapping[str, float]) -> dict[str, float]:
    """Precisions that stand in a fixed ratio to a published one.

    TF32 is half of BF16 on every chip that has it. Hopper's FP64 tensor cores match its FP32 lanes (measured on an H100
    through GPM: within 8 %).
    """
    derived = {"tf32": peaks["bf16"] / 2} if "bf16" in peaks else {}
    if architecture in _FP64_PER_FP32:
        derived["fp64"] = peaks["fp32"] * _FP64_PER_FP32[architecture]
    if architecture == "Hopper":
        derived["fp64_tensor"] = peaks["fp32"]
    return derived


GPUS = tuple(_row(line) for line in _TABLE.strip().splitlines())
_FRACTIONS = {"laptop": "a laptop part", "mig": "a slice of a GPU", "max": "a Max-Q part", "d": "a cut-down part"}


@lru_cache
def find_gpu(name: str) -> GpuModel | Unknown:
    """The published figures for the name that NVML gives.

    >>> gpu = find_gpu("NVIDIA H100 80GB HBM3")
    >>> gpu.name, gpu.peaks["bf16"] / 1e12, gpu.boost_mhz
    ('H100 SXM', 989.4, 1830)
    >>> find_gpu("NVIDIA GH200 480GB").name
    'GH200 96GB'
    >>> find_gpu("NVIDIA GeForce RTX 4090 Laptop GPU").reason
    'no published peaks for "NVIDIA GeForce RTX 4090 Laptop GPU", a laptop part'
    """
    words = _words(name)
    matches = [(len(_words(match)), gpu) for gpu in GPUS for match in gpu.match if _is_run(_words(match), words)]
    special = next((what for word, what in _FRACTIONS.items() if word in words), "")
    if matches and not special:
        return max(matches, key=lambda match: match[0])[1]
    what = f", {special}" if special else ""
    remedy = "compute roofs need a row in llmtop/analysis/gpus/models.py"
    return Unknown(f'no published peaks for "{name}"{what}', remedy)


def _words(name: str) -> list[str]:
    return re.split(r"[\s\-]+", name.lower().removeprefix("nvidia ").strip())


def _is_run(part: list[str], whole: list[str]) -> bool:
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


def dram_peak(facts: Mapping[str, Fact], gpu: GpuModel | Unknown) -> Quantity | Unknown:
    """Bytes per second between the GPU and its memory: what NVML says of this board, else what is published.

    bus width / 8 x highest memory clock x 2 (double data rate). On an H100 SXM: 5120 / 8 x 2619 MHz x 2 = 3352 GB/s,
    against which GPM's DRAM percentage is right to 1 % (docs/gpu-checks.md). 16 datasheets agree to 2.5 %.

    >>> dram_peak({"bus_width_bits": 5120, "max_memory_mhz": 2619}, Unknown("")).value
    3352320000000.0
    """
    bits, mhz = facts.get(GpuFact.BUS_WIDTH_BITS), facts.get(GpuFact.MAX_MEMORY_MHZ)
    if isinstance(bits, int) and isinstance(mhz, int) and bits > 0 and mhz > 0:
        return Quantity(bits / 8 * mhz * 1e6 * 2, "bytes/s", f"NVML: {bits} bit x {mhz} MHz x 2")
    if isinstance(gpu, Unknown):
        return Unknown("NVML gives no memory bus width and clock", gpu.remedy)
    return Quantity(gpu.dram, "bytes/s", gpu.provenance)


def dram_practical(gpu: GpuModel | Unknown, peak: float) -> float | None:
    """What memory-bound kernels reach of the DRAM peak, where it was measured."""
    return peak * _H100_DRAM_SHARE if isinstance(gpu, GpuModel) and gpu.name == "H100 SXM" else None


def compute_practical(gpu: GpuModel, precision: str) -> float | None:
    """FLOP/s that large matrix multiplications reach (stas00/ml-engineering, MAMF), or None without a report."""
    share = gpu.practical.get(precision)
    return None if share is None else share * gpu.peaks[precision]


_DTYPES = {
    "bf16": ("bfloat16", "bf16"),
    "fp16": ("float16", "fp16", "half", "f16"),
    "fp32": ("float32", "fp32", "float", "f32"),
    "tf32": ("tf32", "tensorfloat32"),
    "fp64": ("float64", "fp64", "double"),
    "fp8": ("fp8", "float8", "fp8_e4m3", "fp8_e5m2", "float8_e4m3fn", "float8_e5m2", "e4m3", "e5m2", "w8a8_fp8"),
    "int8": ("int8", "w8a8", "w8a8_int8", "smoothquant"),
    "fp4": ("fp4", "nvfp4", "mxfp4", "modelopt_fp4", "float4_e2m1"),
}
_DTYPE_BY_WORD = {word: precision for precision, words in _DTYPES.items() for word in words}


def precision_of(dtype: Fact) -> str | Unknown:
    """The precision that a server computes in, from its dtype or quantisation as it names them.

    Weight-only quantisation (AWQ, GPTQ) stores few bits but computes in 16: it is unknown here, and its 16-bit dtype is
    what to ask for.

    >>> precision_of("torch.bfloat16"), precision_of("FP8_E4M3"), precision_of("half")
    ('bf16', 'fp8', 'fp16')
    >>> precision_of("auto").reason
    'the dtype "auto" does not say what is computed in'
    """
    if isinstance(dtype, Unknown):
        return dtype
    word = str(dtype).strip().lower().removeprefix("torch.").replace("-", "_")
    precision = _DTYPE_BY_WORD.get(word)
    return precision or Unknown(
        f'the dtype "{dtype}" does not say what is computed in',
        "start the server with an explicit dtype (vLLM: --dtype bfloat16)",
    )


def short_gpu_name(name: str) -> str:
    """The part of a GPU's name that tells it from others.

    >>> short_gpu_name("NVIDIA H100 80GB HBM3"), short_gpu_name("NVIDIA GeForce RTX 4090")
    ('H100 80GB HBM3', 'RTX 4090')
    """
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")
