"""What is known of other people's reports, and by what: the project's own words, or counters and rows read by hand.

The reports are not shipped (repository, commit and licence: SOURCES.csv beside them). `known_causes.py --public DIR`
judges those that are there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Public:
    """What is known of a report, or of one launch in it.

    Attributes:
        file: Its name. An .nsys-rep is exported first, by every nsys at hand.
        launch: Its number in the report; None for the report as a whole.
        cause: In words.
        by: What settles it.
        rules: Any of which names it; none where there is nothing to find.
        beside: Further ones that are true of it.
    """

    file: str
    launch: int | None
    cause: str
    by: str
    rules: tuple[str, ...]
    beside: tuple[str, ...] = ()


_BASELINE, _TO_MULT = "NCAR__GPU_workshop__MW_Baseline.ncu-rep", "NCAR__GPU_workshop__MW_DivToMult.ncu-rep"
_LADDER = "AveryClapp__ESMM-Research__be34af6f_profile.ncu-rep"
_LADDER_ALL = "AveryClapp__ESMM-Research__profile.ncu-rep"
_FUSED = "panjd123__cutlass__384.ncu-rep"
_ROOF, _SMALL, _FP64 = ("kernel-memory-roof",), ("kernel-small-grid",), ("kernel-compute-bound",)

PUBLIC: tuple[Public, ...] = (
    Public(
        _BASELINE,
        None,
        "divisions in FP64",
        "the workshop's next step replaces them by multiplications: 6.19 ms become 3.48 ms; FP64 pipe 70 %",
        _FP64,
        _ROOF,
    ),
    Public(
        _BASELINE, 0, "256 blocks for 80 SMs", "launch__waves_per_multiprocessor 0.27, no throughput above 25 %", _SMALL
    ),
    Public(
        _BASELINE, 1, "256 blocks for 80 SMs", "launch__waves_per_multiprocessor 0.27, no throughput above 25 %", _SMALL
    ),
    Public(
        _BASELINE,
        2,
        "divisions in FP64",
        "FP64 pipe 70 %, DRAM 45 %; it is the kernel that the next step changes",
        _FP64,
    ),
    Public(
        _BASELINE, 3, "streams arrays", "DRAM 74 %, FP64 pipe 23 %; 13 of 22 cycles of a warp wait for loads", _ROOF
    ),
    Public(
        _BASELINE, 4, "streams arrays", "DRAM 74 %, FP64 pipe 0.8 %; 42 of 49 cycles of a warp wait for loads", _ROOF
    ),
    Public(_TO_MULT, None, "streams arrays, without the divisions", "DRAM 75 to 81 % in all that takes time", _ROOF),
    Public(_TO_MULT, 2, "the same kernel without divisions", "DRAM 81 %, FP64 pipe 52 % (45 and 70 % before)", _ROOF),
    Public(
        "josiahls__cuda_learning_mojo__profile.ncu-rep",
        None,
        "one block of 64 threads",
        "launch__grid_size 1 for 24 SMs; SM and memory below 1.4 %",
        _SMALL,
    ),
    Public(
        _LADDER,
        None,
        "SGEMM by steps, mostly the naive one; the last did not run",
        "70 % of the time in `basic`, whose L1 is 99 % busy, DRAM 0.5 %; `one_d_vec` has no grid and no metrics",
        _ROOF,
        ("failed-launches",),
    ),
    Public(_LADDER, 0, "naive SGEMM: a warp reads rows apart", "L1 99 %, DRAM 0.5 %, SM 12 %", _ROOF),
    Public(_LADDER, 1, "coalesced, and no reuse on the SM", "L1 93 %, DRAM 0.7 %", _ROOF),
    Public(_LADDER, 2, "two shared loads for each multiply-add", "L1 (shared memory's too) 89 %, DRAM 0.1 %", _ROOF),
    Public(_LADDER, 3, "eight results a thread: fewer shared loads", "L1 77 % still its busiest, DRAM 8 %", _ROOF),
    Public(
        _LADDER, 4, "64 blocks for 80 SMs", "launch__waves_per_multiprocessor 0.8, one block an SM, L1 57 %", _SMALL
    ),
    Public(
        _LADDER_ALL,
        None,
        "not in the report: `--metrics all` collects the metrics that are called so",
        "357 metrics, no throughput, no cycles; only launch figures",
        ("kernel-uneven",),
    ),
    Public(
        _LADDER_ALL,
        6,
        "16 blocks in a last wave of 240",
        "256 blocks, 3 an SM (registers), 80 SMs: 1.067 waves",
        ("kernel-uneven",),
    ),
    Public(
        _LADDER_ALL, 10, "cuBLAS in two full waves", "launch__waves_per_multiprocessor 2; nothing else is known", ()
    ),
    Public(_FUSED, None, "int8 GEMMs of 384 rows", "96 blocks for 108 SMs; no throughput above 22 %", _SMALL),
    Public(
        _FUSED, 0, "two GEMMs in one kernel: 96 blocks for 108 SMs", "0.89 waves at one block an SM, L2 22 %", _SMALL
    ),
    Public(_FUSED, 1, "one of them alone: 96 blocks for 108 SMs", "0.44 waves at two blocks an SM, L2 18 %", _SMALL),
    Public(
        "Sahil170595__Chimeraforge__ncu_ollama.ncu-rep",
        None,
        "not in the report: launch figures alone",
        "1.862 waves (the last one 86 % full), occupancy 76 %; no throughput",
        (),
    ),
    Public(
        "NCAR__GPU_workshop__miniweather_baseline.sqlite",
        None,
        "writes its output between steps",
        "plain SQL: of the longest gap, 84 ms, the thread is off its CPU for 63 ms (SCHED_EVENTS), and in pwrite, "
        "open and truncate for 6 ms; nine gaps of 8 ms are alike",
        ("host-waits",),
        ("host-code", "sync-stalls", "host-descheduled", "idle-sms", "slow-steps"),
    ),
    Public(
        "NCAR__GPU_workshop__MW_baseline.nsys-rep",
        None,
        "swaps the bytes of its output on the launching thread",
        "plain SQL: 311 CPU samples in the two longest gaps, 82 and 57 ms, most in ncmpii_in_swapn; "
        "off its CPU for 45 ms of them",
        ("host-code",),
        ("host-descheduled",),
    ),
    Public(
        "brycelelbach__nsightful__power_iteration__baseline.sqlite",
        None,
        "writes checkpoints between steps",
        'plain SQL: the NVTX range "IO" spans 26.6 of the longest 26.8 ms, and so in each of the next',
        ("host-code",),
    ),
    Public(
        "GindaChen__nsys-ai__healthy_1pct.sqlite",
        None,
        "nothing: made to be healthy",
        "plain SQL: idle 3.99 of 404 ms",
        (),
    ),
    Public(
        "GindaChen__nsys-ai__mfu_2gpu_before.sqlite",
        None,
        "unfused elementwise kernels between GEMMs",
        "plain SQL: elementwise, concatenation and norm kernels are 32 to 33 % of the kernels' time; "
        "NCCL beside no other kernel 17.2 ms; 51 % in flash::flash_fwd_kernel (FlashAttention-2) beside nvjet (Hopper)",
        ("fusion-chances",),
        ("exposed-communication", "attention-variant", "slow-steps"),
    ),
    Public(
        "GindaChen__nsys-ai__mfu_2gpu_after.sqlite",
        None,
        "the same, and launches later than the GPU",
        "plain SQL: 31 to 33 %; idle 15 and 20 % in 2,366 gaps, of that cudaLaunchKernel 12 and 15 ms, fills and "
        "copies 10 and 14 ms; NCCL beside no other kernel 23.8 ms; 49 % in flash::flash_fwd_kernel beside nvjet",
        ("fusion-chances",),
        ("launch-gaps", "exposed-communication", "attention-variant", "slow-steps"),
    ),
)
