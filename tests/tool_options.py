"""What the profilers take: the options and sections that llmtop's commands use, by the versions that were asked.

Nsight Compute: `ncu --help` of 2022.3.0 and 2024.1.1, `ncu --list-sections` of 2024.1.1; the CLI manual of 2025.
Nsight Systems: `nsys profile --help` of 2022.4.2, 2023.4.4; the user guide of 2025.
"""

from __future__ import annotations

NCU_OPTIONS = frozenset(
    (
        "cache-control", "clock-control", "devices", "disable-profiler-start-stop", "filter-mode", "kernel-id",
        "kernel-name", "kernel-name-base", "kill", "launch-count", "launch-skip", "launch-skip-before-match", "nvtx",
        "nvtx-exclude", "nvtx-include", "profile-from-start", "replay-mode", "section", "set", "support-32bit",
        "target-processes", "target-processes-filter",
    )
)  # fmt: skip
"""In all versions from 2022.3 on."""
NCU_OWN_TO_A_REPORT = frozenset(
    (
        "graph-profiling", "mps", "mps-num-clients", "native-exclude", "native-include", "nvtx-push-pop-scope",
        "pipeline-boost-state", "preload-library", "python-exclude", "python-include", "range-filter",
    )
)  # fmt: skip
"""Came later than 2022.3: only said again where the report was made with it."""
NCU_SECTIONS = frozenset(
    (
        "ComputeWorkloadAnalysis", "InstructionStats", "LaunchStats", "MemoryWorkloadAnalysis",
        "MemoryWorkloadAnalysis_Chart", "MemoryWorkloadAnalysis_Tables", "Occupancy", "SchedulerStats",
        "SourceCounters", "SpeedOfLight", "SpeedOfLight_HierarchicalDoubleRooflineChart",
        "SpeedOfLight_HierarchicalHalfRooflineChart", "SpeedOfLight_HierarchicalSingleRooflineChart",
        "SpeedOfLight_HierarchicalTensorRooflineChart", "SpeedOfLight_RooflineChart", "WarpStateStats",
    )
)  # fmt: skip
SINCE_2024 = frozenset(("WorkloadDistribution",))
"""Of these sections what 2022.3 does not list; reports of older versions than 2024.1 are not told to collect it."""
NSYS_VALUES = {
    "trace": frozenset(("cuda", "nvtx", "osrt", "cublas", "cudnn", "mpi", "ucx", "openacc", "openmp", "none")),
    "cuda-graph-trace": frozenset(("graph", "node")),
    "capture-range": frozenset(("cudaProfilerApi", "nvtx", "none")),
    "export": frozenset(("none", "sqlite")),
    "kill": frozenset(("none", "sigterm", "sigkill")),
    "sample": frozenset(("process-tree", "system-wide", "none")),
    "cpuctxsw": frozenset(("process-tree", "system-wide", "none")),
    "delay": None,
    "duration": None,
    "output": None,
}
"""Options of `nsys profile` with the words that each takes, separated by commas; None: a number or a name."""
