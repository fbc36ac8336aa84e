"""What the view Source costs: until it is made, a frame of it, and the memory of a cubin that is not asked for.

Usage: python benchmarks/source_speed.py [REPORT...]

The budget is 150 ms of CPU time for a kernel of 2,400 instructions, and no memory for 128 MB of cubins. Reports are
those named, or the shipped one with the most instructions; the cubin is made.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from llmtop.analysis.kernels.code_sides import CodePlace, CodeSide, CodeSides
from llmtop.analysis.kernels.source import KernelSource, kernel_source, sampled_launches
from llmtop.model import Trace, Unknown
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import BlockHeader
from llmtop.parsers.registry import load
from llmtop.tui.panes.source import SourcePane, SourceView
from llmtop.tui.render.look import Look
from llmtop.tui.render.source import CodeScreen, draw_code
from tests.parsers.sample_reports import LADDER, content, message

BUDGET_MS = 150.0
REPEATS = 9
CUBIN_BYTES = 128 << 20
SHIPPED = LADDER.with_name("too-many-registers.ncu-rep.xz")


def cpu_ms(begun: float) -> float:
    """Milliseconds of CPU time since then."""
    return 1e3 * (time.process_time() - begun)


def opened(trace: Trace) -> tuple[float, float, KernelSource]:
    """Milliseconds until the view is made, and of a frame of 118 x 36 cells."""
    begun = time.process_time()
    view = SourcePane().view(trace)
    made = cpu_ms(begun)
    assert isinstance(view, SourceView)
    assert not isinstance(view.source, Unknown), view.source
    sides = CodeSides(view.source, view.source.files[0] if view.source.files else "", Unknown("not asked for"))
    place = next(iter(sides.hot(CodeSide.SOURCE)), CodePlace(CodeSide.SASS, "", 0))
    begun = time.process_time()
    draw_code(CodeScreen(CodeSides(view.source, place.file, sides.assembly), place), 118, 36, Look())
    return made, cpu_ms(begun), view.source


def with_cubin(folder: Path, size: int) -> Path:
    """The ladder with another cubin of that size before its blocks: a hole, so that making it takes no memory."""
    plain = content(LADDER)
    first = 8 + int.from_bytes(plain[4:8], "little")
    source = b"\x08\x07\x22" + _varint(size)
    length = len(source) + size
    header = BlockHeader(num_sources=1, payload_size=4 + length).SerializeToString()
    path = folder / "large.ncu-rep"
    with path.open("wb") as file:
        file.write(plain[:first] + message(header) + length.to_bytes(4, "little") + source)
        file.seek(size, 1)
        file.write(plain[first:])
    return path


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def memory_of(path: Path) -> float:
    """By how many MB the peak grows while a report is opened and the code of a kernel is looked at."""
    peak = partial(resource.getrusage, resource.RUSAGE_SELF)
    before = peak().ru_maxrss
    trace = load(path)
    source = kernel_source(trace, sampled_launches(trace)[0])
    assert isinstance(source, KernelSource)
    return (peak().ru_maxrss - before) / 1024


def main() -> int:
    """Print both; 1 where a budget does not hold."""
    is_fine = True
    with tempfile.TemporaryDirectory(prefix="llmtop-source-") as folder:
        path = with_cubin(Path(folder), CUBIN_BYTES)
        load(LADDER)  # what is imported
        grown = memory_of(path)
        print(
            f"{CUBIN_BYTES >> 20} MB of cubins in a report: {grown:.0f} MB more at the peak, with the code of a kernel"
        )
        is_fine &= grown < CUBIN_BYTES >> 21
    for report in map(Path, sys.argv[1:] or [SHIPPED]):
        rounds = [opened(load(report)) for _ in range(REPEATS)]
        made, frame = (statistics.median(one[i] for one in rounds) for i in (0, 1))
        instructions = len(rounds[0][2].code)
        print(f"{report.name}: {instructions} instructions: view {made:.0f} ms, frame {frame:.1f} ms")
        is_fine &= made + frame <= BUDGET_MS
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
