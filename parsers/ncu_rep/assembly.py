"""The text of a kernel's instructions: from a disassembler of CUDA, or else from NVIDIA's own reader of reports."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from llmtop import programs
from llmtop.model import Unknown
from llmtop.parsers.disassembly import disassembled
from llmtop.parsers.ncu_rep.container import Extent
from llmtop.text import clean

if TYPE_CHECKING:
    from llmtop.model import KernelCode
    from llmtop.parsers.ncu_rep.container import ReportFile
    from llmtop.parsers.ncu_rep.sources import StoredCode

_PART = 1 << 20
_SECONDS = 60
_OLDER = "put the nvdisasm of an older CUDA toolkit on the PATH"
_NOT_KNOWN = "???"
"""What NVIDIA's reader says of instructions of GPUs that it does not know any more."""
_READ = """
import json, sys
import ncu_report
path, kernel = sys.argv[1], int(sys.argv[2])
for group in ncu_report.load_report(path):
    if kernel < group.num_actions():
        action = group.action_by_idx(kernel)
        json.dump([action.sass_by_pc(address) for address in json.load(sys.stdin)], sys.stdout)
        break
    kernel -= group.num_actions()
"""
"""Run in a process of its own: it takes 150 MB, and a damaged report may end it."""


def assembly_of(
    file: ReportFile, stored: StoredCode, code: KernelCode, kernel: int | None
) -> Mapping[int, str] | Unknown:
    """The text of instructions by address, or why there is none.

    Args:
        file: The report.
        stored: The code of the kernel, with a cubin.
        code: Its instructions.
        kernel: Its number in the report as NVIDIA's reader counts; None where that is not known.
    """
    symbols = {clean(name): (symbol, name) for name, _, symbol in stored.functions}
    wanted = [symbols[name] for name in code.functions if name in symbols]
    if not wanted or stored.cubin is None:
        return Unknown("the report does not tell of which functions the instructions are")
    texts = disassembled(_parts(file, stored.cubin), wanted)
    if isinstance(texts, Unknown):
        return _from_reader(file, code, kernel, texts)
    by_name = {clean(name): of for name, of in texts.items()}
    rows = zip(code.addresses, code.function_id, code.offsets, strict=True)
    found = {address: by_name.get(code.functions[id], {}).get(offset) for address, id, offset in rows}
    return {address: text for address, text in found.items() if text is not None}


def _parts(file: ReportFile, extent: Extent) -> Iterator[bytes]:
    for at in range(extent.offset, extent.end, _PART):
        yield file.read(Extent(at, min(_PART, extent.end - at)))


def _from_reader(
    file: ReportFile, code: KernelCode, kernel: int | None, why_not: Unknown
) -> Mapping[int, str] | Unknown:
    """What NVIDIA's reader of reports says, where it is installed beside llmtop; else why nothing else did."""
    if kernel is None or find_spec("ncu_report") is None:
        return why_not
    with tempfile.TemporaryDirectory(prefix="llmtop-") as folder:
        link = Path(folder, "report.ncu-rep")
        link.symlink_to(file.open_path)
        try:
            done = programs.run(
                programs.python(_READ, str(link), str(kernel)),
                input=json.dumps(list(code.addresses)).encode(),
                capture_output=True,
                timeout=_SECONDS,
                check=True,
            )
            texts = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return why_not
    return _known(code, texts) or Unknown(f"{why_not.reason}, and NVIDIA's reader of reports cannot either", _OLDER)


def _known(code: KernelCode, texts: list[object]) -> dict[int, str]:
    pairs = zip(code.addresses, texts, strict=False)
    return {
        address: clean(" ".join(text.split()))
        for address, text in pairs
        if isinstance(text, str) and text.strip() not in ("", _NOT_KNOWN)
    }
