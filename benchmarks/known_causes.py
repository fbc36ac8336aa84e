"""Captures whose cause is known: is the first finding right, and is anything false beside it?

    python benchmarks/known_causes.py DIR/*.ncu-rep DIR/*.sqlite      # made by known_causes.cu: named by their cause
    python benchmarks/known_causes.py --made                          # timelines that the tests write, and the samples
    python benchmarks/known_causes.py --public ../shared/samples/public      # other people's reports: public_causes.py

A capture is known by its name (`bank_conflicts.ncu-rep`). The first finding must be one that names the cause, and every
warning beside it one that is true of that capture too. Prints a table in Markdown; the exit code is 1 where one
is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from llmtop.analysis.kernels.nvtx_ranges import only_launches
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import Finding, Severity, Trace
from llmtop.parsers.nsys import NsysSqliteParser
from llmtop.parsers.registry import load

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the tests' captures, from a checkout

from benchmarks.public_causes import PUBLIC, Public  # noqa: E402
from tests.nsys_scenes import SCENES  # noqa: E402
from tests.nsys_schemas import NEWEST, OLDEST, USUAL  # noqa: E402
from tests.nvidia_tools import tools  # noqa: E402


@dataclass(frozen=True)
class Known:
    """What is known of a capture.

    Attributes:
        cause: In words.
        rules: Any of which names it.
        beside: Further ones that are true of it.
        by: What settles it, where others made the capture.
    """

    cause: str
    rules: tuple[str, ...]
    beside: tuple[str, ...] = ()
    by: str = ""


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
        "NVRTC compiles between steps",
        "host-code",
        "code-loading",
        beside=("host-code", "code-loading", "launch-gaps", "slow-steps"),
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

    @property
    def cells(self) -> tuple[str, ...]:
        """What the table says of it, its name and its tool apart."""
        first = f"{self.findings[0].rule}: {self.findings[0].message}" if self.findings else "none"
        right, false = "yes" if self.is_right else "**no**", ", ".join(self.false) or "-"
        by = (self.known.by,) if self.known.by else ()
        return self.known.cause, *by, first.replace("|", "/"), right, false


def _tool(trace: Trace) -> str:
    schema = f", schema {trace.origin.facts['schema']}" if "schema" in trace.origin.facts else ""
    return f"{trace.origin.kind} {trace.origin.tool_version.split(' ')[0]}{schema}".strip()


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
    """Timelines with one cause of idle time each, as the tests write them, and the samples.

    In an old and in new schemas; those of which the same is to be said are one row.
    """
    yield from from_files(sorted((ROOT / "sample_traces").glob("n*/*/*.xz")))
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(SCENES):
            place = Path(folder) / str(number)
            place.mkdir()
            for _, alike in groupby(_in_schemas(name, place), lambda one: one.cells):
                first, *others = alike
                yield replace(first, tool=", ".join((f"made: {first.tool}", *(one.tool for one in others))))


def _in_schemas(name: str, place: Path) -> Iterator[Judged]:
    scene = SCENES[name]
    capture = scene.make()
    for schema in (OLDEST, USUAL, NEWEST):
        if capture.fits(schema):
            findings = diagnose(NsysSqliteParser().parse(capture.write(place / f"{schema}.sqlite", schema))).findings
            yield Judged(name, schema.version, Known(name, scene.rules[:1], scene.rules), findings)


def public(folder: Path) -> Iterator[Judged]:
    """Those of other people's reports that are there."""
    with tempfile.TemporaryDirectory() as exports:
        for known in PUBLIC:
            for path in _readable(folder / known.file, Path(exports)):
                trace = _launch_of(load(path), known.launch)
                expected = Known(known.cause, known.rules, known.beside, known.by)
                yield Judged(_called(known, trace), _tool(trace), expected, diagnose(trace).findings)


def _readable(path: Path, exports: Path) -> Iterable[Path]:
    """The report itself; of an .nsys-rep what each nsys at hand exports."""
    if path.suffix != ".nsys-rep" or not path.exists():
        return [path] if path.exists() else []
    made = [exports / f"{path.stem}-{number}.sqlite" for number, _ in enumerate(tools("nsys"))]
    for tool, export in zip(tools("nsys"), made, strict=True):
        subprocess.run([tool, "export", "--type=sqlite", "-o", export, path], check=True, capture_output=True)
    return made


def _launch_of(trace: Trace, launch: int | None) -> Trace:
    if launch is None or trace.kernels is None:
        return trace
    return replace(trace, kernels=only_launches(trace.kernels, [launch]))


def _called(known: Public, trace: Trace) -> str:
    owner, repository, name = known.file.split("__", 2)
    kernels = trace.kernels
    at = "" if known.launch is None or kernels is None else f", {known.launch}: {kernels.functions[kernels.name_id[0]]}"
    return f"{owner}/{repository}: {name}{at}"


def show(judged: Iterable[Judged], *columns: str) -> bool:
    """Print a table; whether all of it is right."""
    rows = list(judged)
    if rows:
        print(f"| {' | '.join(columns)} |")
        print("|---" * len(columns) + "|")
    for one in rows:
        print(f"| {' | '.join((one.name, one.tool, *one.cells))} |")
    return all(one.is_right and not one.false for one in rows)


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--made", action="store_true", help="the captures of the tests, and sample_traces")
    parser.add_argument("--public", type=Path, metavar="DIR", help="where other people's reports are")
    args = parser.parse_args()
    found = ("first finding", "right", "false beside it")
    ours = (*from_files(args.paths), *(made() if args.made else ()))
    are_right = show(ours, "capture", "tool", "cause", *found)
    if args.public is not None:
        are_right &= show(public(args.public), "report", "tool", "cause", "known by", *found)
    return 0 if are_right else 1


if __name__ == "__main__":
    sys.exit(main())
