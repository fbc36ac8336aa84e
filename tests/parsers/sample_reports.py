"""Reports for the tests of parsers: those in sample_traces, others where the machine has them, and made ones."""

from __future__ import annotations

import lzma
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmtop.parsers.ncu_rep import MAGIC
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import BlockHeader, Launch, Metric, Session, Size, StringTable, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_TRACES = ROOT / "sample_traces"
OTHERS = ROOT.parent / "shared" / "samples"
LADDER = SAMPLE_TRACES / "ncu" / "2025.3.1" / "sgemm-ladder.ncu-rep.xz"
DECODE = SAMPLE_TRACES / "ncu" / "2025.3.1" / "llama-decode.ncu-rep.xz"


def ncu_reports() -> list[Path]:
    """Every .ncu-rep at hand, the ones shipped with llmtop first."""
    return sorted(SAMPLE_TRACES.rglob("*.ncu-rep*")) + sorted((OTHERS / "public").glob("*.ncu-rep"))


def different_ncu_reports() -> list[Path]:
    """Of the reports that are shipped a few, and of those of others one of each."""
    shipped = [
        path for path in ncu_reports() if path.suffix == ".xz" and path.name.startswith(("few", "sgemm", "llama"))
    ]
    return [*shipped, *{path.name.split("__")[0]: path for path in ncu_reports() if path.suffix != ".xz"}.values()]


def content(path: Path) -> bytes:
    """The bytes of a report, unpacked."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def message(body: bytes) -> bytes:
    """A message with its length before it, as the container has it."""
    return struct.pack("<I", len(body)) + body


def kernel(function: bytes = b"scale", **fields: Any) -> Launch:
    """A kernel launch of one block of 32 threads in stream 7."""
    size = Size(x=1, y=1, z=1)
    return Launch(
        function=function, demangled=function + b"(float *)", grid=size, block=Size(x=32, y=1, z=1), stream=7, **fields
    )


def metric(name: int, **value: Any) -> Metric:
    """A metric by the index of its name."""
    return Metric(name=name, value=Value(**value))


def report(
    *launches: Launch, names: Sequence[bytes] = (), session: Session | None = None, other_results: int = 0
) -> bytes:
    """A report: a block with the session and the metric names, then one for each kernel."""
    first = BlockHeader(strings=StringTable(items=names), session=session, num_range_results=other_results)
    others = message(b"") * other_results
    first.payload_size = len(others)
    parts = [MAGIC, message(b"\x08\x07"), message(first.SerializeToString()), others]
    for launch in launches:
        payload = message(launch.SerializeToString())
        header = BlockHeader(num_results=1, payload_size=len(payload))
        parts += [message(header.SerializeToString()), payload]
    return b"".join(parts)
