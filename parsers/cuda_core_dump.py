"""Core dumps of GPUs: what the driver writes when a kernel fails and CUDA_ENABLE_COREDUMP_ON_EXCEPTION is set.

The file is an ELF file of sections for each device, multiprocessor, block, warp and lane that was in use; the layout is
that of cudacoredump.h of CUDA's debugger API, whose entries have grown over time: what is behind the known fields is
left alone. Sections refer to the entry that they are of by `link` (a section) and `info` (an entry in it).
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from dataclasses import replace
from itertools import islice
from mmap import ACCESS_READ, mmap
from typing import TYPE_CHECKING, Final

from llmtop import ids, whats
from llmtop.errors import FileError
from llmtop.facts import GpuFact
from llmtop.frozen import frozen
from llmtop.model import (
    FailedWarp,
    GpuFault,
    Issue,
    Missing,
    Origin,
    Severity,
    Trace,
    Track,
    TrackKind,
    Unknown,
    UnknownKind,
)
from llmtop.parsers.base import Content
from llmtop.parsers.cubin import Cubin, CubinError
from llmtop.parsers.disassembly import disassembled
from llmtop.parsers.elf import ElfFormatError, ElfSections, Section, Symbol
from llmtop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from llmtop.parsers.base import Parser

_CORE, _CUDA = 4, 190
"""The type of an ELF file, and its machine (EM_CUDA)."""
_USER = 0x8000_0000
_REGISTERS, _IMAGE, _RELOCATED, _DEVICES, _MULTIPROCESSORS, _GRIDS, _LANES, _PREDICATES = (
    _USER + kind for kind in (5, 6, 7, 9, 11, 12, 15, 17)
)
_STRINGS = 3
_DEVICE = struct.Struct("<QQQIIIIIIIIIIII")
_MULTIPROCESSOR = struct.Struct("<II")
_FAILED_MULTIPROCESSOR = struct.Struct("<IIIIQ")
"""With the exception and where it was, since driver 555."""
_GRID = struct.Struct("<7Q4I6I")
_BLOCK = struct.Struct("<QIII")
_WARP = struct.Struct("<QIIIII")
_LANE = struct.Struct("<QQIIIIIII")
EXCEPTIONS: Final = {
    1: "Lane Illegal Address",
    2: "Lane User Stack Overflow",
    3: "Device Hardware Stack Overflow",
    4: "Warp Illegal Instruction",
    5: "Warp Out-of-range Address",
    6: "Warp Misaligned Address",
    7: "Warp Invalid Address Space",
    8: "Warp Invalid PC",
    9: "Warp Hardware Stack Overflow",
    10: "Device Illegal Address",
    11: "Lane Misaligned Address",
    12: "Warp Assert",
    13: "Lane Syscall Error",
    14: "Warp Illegal Address",
    15: "Lane Non-migratable Atomic",
    16: "Lane Invalid Atomic",
    17: "Cluster Out-of-range Address",
    18: "Cluster Target Block Not Present",
    19: "Warp Stack Canary",
}
"""CUDBGException_t, in cuda-gdb's words."""
_TRAP = "Trap or breakpoint"
"""What cuda-gdb tells as SIGTRAP: the warp is stopped, and the GPU calls it no exception."""
_INSTRUCTION = 16
"""Bytes of one, from Volta on; bits 12 to 14 of it name the predicate that guards it, and bit 15 turns that round."""
_ALWAYS = 7
MOST_FAULTS = 256
"""A fault may stop every warp of a GPU: more of the same tell nothing more."""
_MANGLED, _LENGTH = re.compile(r"_ZN?K?(?=\d)"), re.compile(r"\d{1,4}")
_NO_NAME = "a kernel of no known name"
_NO_IMAGE = Unknown("its code is not in the dump")
_NO_KERNELS = Missing(
    whats.KERNELS, Unknown("a core dump tells where kernels stood, not how long they took", kind=UnknownKind.FAILED)
)
_NO_LINES = Unknown("the program was compiled without lines", "compile it with -lineinfo")
_CUT = (
    "is a core dump of a GPU that was cut short: the program ended or the disk was full while it was written; let the "
    "program end by the driver's abort: in CUDA_COREDUMP_GENERATION_FLAGS no skip_abort, and skip_constbank_memory "
    "beside skip_global_memory, without which driver 580 stops half-way"
)


class CudaCoreDumpParser:
    """What the CUDA driver leaves of a GPU on which a kernel failed."""

    name = "cuda-core"
    title = "core dumps of GPUs"
    written_by = "the CUDA driver, with `CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1`"
    extensions: tuple[str, ...] = (".nvcudmp",)
    holds = frozenset({Content.FAULTS, Content.GPU})

    def sniff(self, head: bytes, path: Path) -> bool:
        """An ELF core file of CUDA's own machine."""
        kind = struct.unpack_from("<HH", head.ljust(20, b"\0"), 16)
        return head.startswith(b"\x7fELF\x02\x01") and kind == (_CORE, _CUDA)

    def parse(self, path: Path) -> Trace:
        try:
            with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                return _Dump(data).trace()
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror}") from error
        except ElfFormatError as error:
            is_cut = "does not fit" in str(error)
            raise FileError(f"{path} {_CUT}" if is_cut else f"{path} is damaged: {error}") from error


class _Dump:
    """One core dump.

    Raises:
        ElfFormatError: It is damaged, as do all methods.
    """

    def __init__(self, data: mmap) -> None:
        self._elf = ElfSections(lambda offset, size: data[offset : offset + size], len(data))
        self._sections = self._elf.sections
        self._of_lanes: dict[tuple[int, int, int], Section] = {}
        """Registers and predicates, by kind, the table of the lane, and its row."""
        self._by_kind: defaultdict[int, list[Section]] = defaultdict(list)
        for section in self._sections:
            self._by_kind[section.kind].append(section)
            if section.kind in (_REGISTERS, _PREDICATES):
                self._of_lanes[section.kind, section.link, section.info] = section
        self._functions = tuple(self._relocated())
        self._texts: dict[int, dict[int, str] | Unknown] = {}

    def trace(self) -> Trace:
        """What failed, and where."""
        faults, issues = list(islice(self._faults(), MOST_FAULTS + 1)), list[Issue]()
        if len(faults) > MOST_FAULTS:
            more = f"more than {MOST_FAULTS} warps failed: the first ones are told"
            issues.append(Issue(Severity.INFO, "faults", more))
        tracks = {track.id: track for track in self._gpus()}
        gpu = next((track.name for track in tracks.values()), "")
        return Trace(
            Origin(CudaCoreDumpParser.name, gpu=gpu),
            tracks=tracks,
            faults=tuple(faults[:MOST_FAULTS]),
            issues=tuple(issues),
            missing=(_NO_KERNELS,),
        )

    # Tables

    def _rows(self, section: Section, layout: struct.Struct) -> list[tuple[int, ...]]:
        """The entries of a table, of which only the fields of the layout are read."""
        content, size = self._elf.content(section), section.entry or layout.size
        if size < layout.size:
            raise ElfFormatError("an entry of it is shorter than any")
        return [layout.unpack_from(content, at) for at in range(0, len(content) - size + 1, size)]

    def _above(self, section: Section, layout: struct.Struct) -> tuple[Section, tuple[int, ...]]:
        """The entry that a section is of, and the table that it stands in."""
        table = self._sections[section.link] if section.link < len(self._sections) else section
        rows = self._rows(table, layout)
        if section.info >= len(rows):
            raise ElfFormatError("a table of it is of an entry that is not there")
        return table, rows[section.info]

    def _gpus(self) -> Iterator[Track]:
        strings = next((one for one in self._by_kind[_STRINGS] if one.name == ".strtab"), None)
        texts = b"" if strings is None else self._elf.content(strings)
        for section in self._by_kind[_DEVICES]:
            for row in self._rows(section, _DEVICE):
                name = clean(texts[row[0] :].partition(b"\0")[0].decode(errors="replace")) or "GPU"
                yield Track(ids.gpu(row[3]), TrackKind.GPU, name, facts={GpuFact.NAME: name})

    # Warps

    def _faults(self) -> Iterator[GpuFault]:
        """Of warps; of multiprocessors whose failed warps were gone; else of warps that stand at a trap."""
        grids = {row[0]: row for one in self._by_kind[_GRIDS] for row in self._rows(one, _GRID)}
        told = set[tuple[str, int]]()
        for section in self._by_kind[_LANES]:
            lanes = self._rows(section, _LANE)
            failed = [i for i, lane in enumerate(lanes) if lane[6]]
            if failed:
                yield (fault := self._fault(section, lanes, failed, grids))
                told.add((fault.gpu, fault.sm))
        for fault in self._without_warps():
            if (fault.gpu, fault.sm) not in told:
                yield fault
                told.add((fault.gpu, fault.sm))
        if not told:
            yield from self._trapped(grids)

    def _fault(
        self,
        section: Section,
        lanes: Sequence[tuple[int, ...]],
        failed: Sequence[int],
        grids: Mapping[int, tuple[int, ...]],
    ) -> GpuFault:
        """What one warp failed with, whose lanes these are, of which some failed."""
        warps, warp = self._above(section, _WARP)
        blocks, block = self._above(warps, _BLOCK)
        multiprocessors, (sm, _) = self._above(blocks, _MULTIPROCESSOR)
        _, device = self._above(multiprocessors, _DEVICE)
        failed = [i for i in failed if warp[3] >> lanes[i][2] & 1] or failed  # the others wait for those at a branch
        is_exact = bool(warp[5])
        pc = warp[0] if is_exact else lanes[failed[0]][0]
        code = self._code(pc)
        actor = self._actor(section, failed, code) if code is not None and is_exact else None
        row = failed[0] if actor is None else actor
        grid = grids.get(block[0], (0,) * 17)
        exception = lanes[row][6]
        place = _three(block[1:4]), _three(lanes[row][3:6])
        lane = None if actor is None else lanes[actor][2]
        stood = FailedWarp(warp[1], _three(grid[11:14]), _three(grid[14:17]), *place, len(failed), lane)
        fault = GpuFault(
            _name(exception) if exception else _TRAP,
            exception,
            ids.gpu(device[3]),
            sm,
            self._kernel(grid[3]),
            stood,
            pc,
            is_exact,
            registers=self._words(_REGISTERS, section, row),
        )
        return fault if code is None else self._in_code(fault, code)

    def _without_warps(self) -> Iterator[GpuFault]:
        """Of multiprocessors that keep an exception: its warp may have ended, as a store is not waited for."""
        for section in self._by_kind[_MULTIPROCESSORS]:
            if section.entry < _FAILED_MULTIPROCESSOR.size:
                continue
            _, device = self._above(section, _DEVICE)
            for sm, _, exception, is_exact, pc in self._rows(section, _FAILED_MULTIPROCESSOR):
                if exception:
                    code = self._code(pc)
                    kernel = _NO_NAME if code is None else readable(code.function.name)
                    fault = GpuFault(
                        _name(exception), exception, ids.gpu(device[3]), sm, kernel, None, pc, bool(is_exact)
                    )
                    yield fault if code is None else self._in_code(fault, code)

    def _trapped(self, grids: Mapping[int, tuple[int, ...]]) -> Iterator[GpuFault]:
        """Warps that the GPU has stopped, of no exception: all their threads are where they stand."""
        for section in self._by_kind[_LANES]:
            lanes = self._rows(section, _LANE)
            if lanes and self._above(section, _WARP)[1][4]:
                yield self._fault(section, lanes, range(len(lanes)), grids)

    def _actor(self, section: Section, failed: Sequence[int], code: _Stood) -> int | None:
        """The row of the one lane that carried out the instruction, where a predicate keeps the others from it.

        The predicates are those of when the warp stood: the instruction that failed does not set its own.
        """
        guard = int.from_bytes(code.instruction[:2], "little") >> 12
        predicate, is_turned = guard & 7, bool(guard >> 3)
        if predicate == _ALWAYS or not code.instruction:
            return None
        acting = []
        for i in failed:
            predicates = self._words(_PREDICATES, section, i)
            if predicate >= len(predicates):
                return None
            if bool(predicates[predicate]) != is_turned:
                acting.append(i)
        return acting[0] if len(acting) == 1 else None

    def _words(self, kind: int, section: Section, row: int) -> tuple[int, ...]:
        """Registers or predicates of a lane; none where they were left out."""
        stored = self._of_lanes.get((kind, section.index, row))
        content = b"" if stored is None else self._elf.content(stored)
        return struct.unpack(f"<{len(content) // 4}I", content[: len(content) // 4 * 4])

    # Code

    def _relocated(self) -> Iterator[_Loaded]:
        """The functions that were loaded, where they were loaded; a damaged image costs its own."""
        for section in self._by_kind[_RELOCATED]:
            content = self._elf.content(section)
            try:
                image = ElfSections(lambda at, size, content=content: content[at : at + size], len(content))  # type: ignore[misc]
                for symbol in image.symbols:
                    if symbol.is_function and symbol.value:
                        text = image.sections[symbol.section] if symbol.section < len(image.sections) else None
                        yield _Loaded(symbol.name, symbol.value, symbol.size, section.info, image, text)
            except ElfFormatError:
                continue

    def _code(self, pc: int) -> _Stood | None:
        found = next((one for one in self._functions if one.start <= pc < one.start + one.size), None)
        if found is None:
            return None
        offset = pc - found.start
        text = b"" if found.text is None else found.image.content(found.text)
        return _Stood(found, offset, text[offset : offset + _INSTRUCTION])

    def _kernel(self, entry: int) -> str:
        found = next((one.name for one in self._functions if one.start == entry), "")
        return readable(found) or _NO_NAME

    def _in_code(self, fault: GpuFault, code: _Stood) -> GpuFault:
        """The same with its function, line and instruction."""
        place, instruction = self._lines_and_text(code)
        return replace(
            fault,
            function=readable(code.function.name),
            offset=code.offset,
            place=place,
            instruction=instruction,
        )

    def _lines_and_text(self, code: _Stood) -> tuple[str | Unknown, str | Unknown]:
        images = [one for one in self._by_kind[_IMAGE] if one.info == code.function.module]
        if not images:
            return _NO_IMAGE, _NO_IMAGE
        content = self._elf.content(images[0])
        try:
            cubin = Cubin(lambda at, size: content[at : at + size], len(content))
            function = cubin.function(-1, code.function.name)
            row = None if function is None else cubin.lines(function).at(code.offset)
        except CubinError as error:
            damaged = Unknown(f"its code is damaged: {error}")
            return damaged, damaged
        place = _NO_LINES if row is None or row.file is None else f"{clean(row.file.path)}:{row.line}"
        return place, _NO_IMAGE if function is None else self._text(content, function, code.offset)

    def _text(self, content: bytes, function: Symbol, offset: int) -> str | Unknown:
        """The text of an instruction; each function is disassembled once."""
        key = hash((content[:64], len(content), function.index))
        if key not in self._texts:
            found = disassembled([content], [(function.index, function.name)])
            self._texts[key] = found if isinstance(found, Unknown) else dict(found.get(function.name, {}))
        texts = self._texts[key]
        return texts if isinstance(texts, Unknown) else texts.get(offset, _NO_IMAGE)


@frozen
class _Loaded:
    """A function in the memory of a GPU: from `start` on so many bytes; `text` is their section in `image`."""

    name: str
    start: int
    size: int
    module: int
    image: ElfSections
    text: Section | None


@frozen
class _Stood:
    """A place in a function, and the bytes of the instruction there."""

    function: _Loaded
    offset: int
    instruction: bytes


def _three(numbers: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = numbers
    return x, y, z


def _name(exception: int) -> str:
    return EXCEPTIONS.get(exception, f"exception {exception}")


def readable(name: str) -> str:
    """The name of a function as it is in the source, without its arguments.

    >>> readable("_Z7kv_trapPfi"), readable("_ZN4vllm3addIfEEvPT_"), readable("gemm")
    ('kv_trap', 'vllm::add', 'gemm')
    """
    found = _MANGLED.match(name)
    if found is None:
        return clean(name)
    parts, at = list[str](), found.end()
    while (length := _LENGTH.match(name, at)) is not None:
        at = length.end() + int(length[0])
        parts.append(name[length.end() : at])
        if found[0] == "_Z":
            break
    return clean("::".join(parts))


PARSER: Final[Parser] = CudaCoreDumpParser()
