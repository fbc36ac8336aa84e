"""Reports for the tests of parsers: those in sample_traces, and others where the machine has them."""

from __future__ import annotations

import lzma
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_TRACES = ROOT / "sample_traces"
OTHERS = ROOT.parent / "shared" / "samples"
LADDER = SAMPLE_TRACES / "ncu" / "2025.3.1" / "sgemm-ladder.ncu-rep.xz"
DECODE = SAMPLE_TRACES / "ncu" / "2025.3.1" / "llama-decode.ncu-rep.xz"


def ncu_reports() -> list[Path]:
    """Every .ncu-rep at hand, the ones shipped with llmtop first."""
    return sorted(SAMPLE_TRACES.rglob("*.ncu-rep*")) + sorted((OTHERS / "public").glob("*.ncu-rep"))


def content(path: Path) -> bytes:
    """The bytes of a report, unpacked."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data
