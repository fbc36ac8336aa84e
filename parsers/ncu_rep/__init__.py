"""Nsight Compute reports (.ncu-rep), read natively: no CUDA toolkit, no NVIDIA library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from llmtop.parsers.base import Content

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.model import Trace
    from llmtop.parsers.base import Parser

MAGIC = b"NVR\0"


class NcuRepParser:
    """Files that `ncu -o` writes, versions 2019 to 2026."""

    name = "ncu-rep"
    title = "Nsight Compute reports"
    written_by = "`ncu -o`"
    extensions: tuple[str, ...] = (".ncu-rep",)
    holds = frozenset({Content.KERNELS, Content.GPU, Content.TOOL_VERSION})

    def sniff(self, head: bytes, path: Path) -> bool:
        return head.startswith(MAGIC)

    def parse(self, path: Path) -> Trace:
        # The reader brings protobuf, which sniffing other files must not pay for.
        from llmtop.parsers.ncu_rep.reader import read_report

        return read_report(path)


PARSER: Final[Parser] = NcuRepParser()
