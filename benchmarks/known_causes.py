"""Captures whose cause is known: is the first finding right, and is anything false beside it?

    python benchmarks/known_causes.py DIR/*.ncu-rep DIR/*.sqlite      # made by known_causes.cu: named by their cause
    python benchmarks/known_causes.py --made                          # timelines that the tests write, and the samples

A capture is known by its name (`bank_conflicts.ncu-rep`). The first finding must be one that names the cause, and every
warning beside it one that is true of that capture too. Prints a table in Markdown; the exit code is 1 where one
is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Finding, Severity, Trace
from llmtop.parsers.registry import load

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the tests' captures, from a checkout

from tests.nsys_scenes import SCENES  # noqa: E402


@dataclass(frozen=True)
class Known:
    """What is known of a capture.

    Attributes:
        cause: In words.
        rules: Any of which names it.
        beside: Further ones that are true of it.
    """

    cause: str
    rules: tuple[str, ...]
    beside: tuple[str, ...] = ()


def _known(cause: str, *rules: str, beside: tuple[str, ...] = ()) -> Known:
    return Known(cause, rules, beside)


KNOWN: Mapping[str, Known] = {
    # known_causes.cu
    "copy_at_roof": _known("wide, coalesced copy: nothing but its bytes", "kernel-memory-roof"),
    "few_metrics": _known("the same, in a report of three metrics", "kernel-memory-roof"),
    "uncoalesced_loads": _known("each load moves a sector for 4 bytes", "kernel-uncoalesced"),
    "uncoalesced_stores": _known("each store does", "kernel-uncoalesced"),
    "narrow_accesses": _known("one byte a thread at a time", "kernel-narrow-accesses"),
    "bank_conflicts": _known("32 lanes on one bank", "kernel-bank-conflicts"),
    "dependent_loads": _known("each load needs the one before; full occupancy", "kernel-memory-latency"),
    "tiny_blocks": _known("the same in blocks of one warp", "kernel-low-occupancy"),
    "contended_atomics": _known("all threads add to eight counters", "kernel-atomics"),
    "too_many_registers": _known("170 registers a thread", "kernel-low-occupancy"),
    "too_much_shared_memory": _known("90 KiB for two warps", "kernel-low-occupancy"),
    "small_grid": _known("8 blocks", "kernel-small-grid"),
    "one_block_too_many": _known("a last wave of one block", "kernel-uneven"),
    "register_spills": _known("96 values in 32 registers", "kernel-spills"),
    "sgemm_tiled": _known("a good GEMM in fp32 without tensor cores", "kernel-tensor-missed"),
    "dependent_chain": _known(
        "one warp a scheduler, each instruction needs the one before", "kernel-waits", "kernel-small-grid"
    ),
    "divergent_branches": _known("32 paths a warp", "kernel-divergence"),
    "special_functions": _known("sines, exponentials, roots", "kernel-compute-bound"),
    "double_precision": _known("FP64", "kernel-compute-bound"),
    "barriers": _known("one warp works, 31 wait", "kernel-waits", "kernel-divergence"),
    "unfused": _known("casts and elementwise kernels in a row", "fusion-chances", beside=("kernel-memory-roof",)),
    "unfused_timeline": _known("the same as a timeline", "fusion-chances", beside=("launch-gaps", "kernel-turnaround")),
    # sample_traces
    "sgemm_ladder": _known("mostly a naive SGEMM", "kernel-uncoalesced", beside=("kernel-bank-conflicts",)),
    "llama_decode": _known("a decode step in unfused kernels", "fusion-chances", beside=("kernel-memory-roof",)),
    "llama_prefill_decode": _known(
        "NVRTC compiles between steps", "host-code", "code-loading", beside=("host-code", "code-loading", "launch-gaps")
    ),
}


@dataclass(frozen=True)
class Judged:
    """A capture held against what is known of it."""

    name: str
    tool: str
    known: Known
    findings: tuple[Finding, ...]

    @property
    def is_right(self) -> bool:
        """Whether the first finding names the cause; nothing to find is right with no finding at all."""
        return self.findings[0].rule in self.known.rules if self.findings else not self.known.rules

    @property
    def false(self) -> tuple[str, ...]:
        """Rules of warnings beside it that are not true of it."""
        true = {*self.known.rules, *self.known.beside}
        return tuple(one.rule for one in self.findings if one.severity is not Severity.INFO and one.rule not in true)


def _tool(trace: Trace) -> str:
    return f"{trace.origin.kind} {trace.origin.tool_version.split(' ')[0]}".strip()


def from_files(paths: list[Path]) -> Iterator[Judged]:
    """Captures that are known by the name of their file."""
    for path in paths:
        name = path.name.split(".")[0].replace("-", "_")
        if name not in KNOWN:
            print(f"{path}: nothing is known of it", file=sys.stderr)
            continue
        trace = load(path)
        yield Judged(name, _tool(trace), KNOWN[name], diagnose(trace).findings)


def made() -> Iterator[Judged]:
    """Timelines with one cause of idle time each, as the tests write them, and the samples."""
    yield from from_files(sorted((ROOT / "sample_traces").glob("n*/*/*.xz")))
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, scene) in enumerate(SCENES.items()):
            place = Path(folder) / str(number)
            place.mkdir()
            trace = scene.make().trace(place)
            yield Judged(name, "made", Known(name, scene.rules[:1], scene.rules), diagnose(trace).findings)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--made", action="store_true", help="the captures of the tests, and sample_traces")
    args = parser.parse_args()
    wrong = 0
    print("| capture | tool | cause | first finding | right | false beside it |")
    print("|---|---|---|---|---|---|")
    for one in (*from_files(args.paths), *(made() if args.made else ())):
        first = f"{one.findings[0].rule}: {one.findings[0].message}" if one.findings else "none"
        wrong += not one.is_right or bool(one.false)
        right, false = "yes" if one.is_right else "**no**", ", ".join(one.false) or "-"
        print(f"| {one.name} | {one.tool} | {one.known.cause} | {first.replace('|', '/')} | {right} | {false} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
