"""The instructions of a report's kernels, their values and their source, decoded when they are asked for."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.message import DecodeError

from llmtop.errors import FileError
from llmtop.frozen import frozen
from llmtop.model import KernelCode, SourceText, Unknown
from llmtop.parsers.ncu_rep import ncu_rep_pb2 as pb
from llmtop.parsers.ncu_rep.container import Extent
from llmtop.parsers.ncu_rep.details import StoredValues, value_of
from llmtop.parsers.ncu_rep.sources import StoredCode, stored_code, stored_id
from llmtop.parsers.sass import WIDE, fused_half
from llmtop.parsers.source_files import MAX_SOURCE, found_source, source_lines
from llmtop.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from llmtop.parsers.cubin import Cubin, CubinError
    from llmtop.parsers.line_table import SourceName
    from llmtop.parsers.ncu_rep.container import ReportFile

_KEPT = 2
"""Kernels kept decoded."""
_SAMPLED = "smsp__pcsamp_"
_EXECUTED = frozenset({"inst_executed", "thread_inst_executed"})
_FIRST_WIDE = 7
"""The compute capability of Volta. Before it words that schedule others stand between: these have no values."""
_MEMORY = 1 << 64
_MOST_INSTRUCTIONS = 1 << 20
_NOT_SAMPLED = Unknown("nothing was collected by instruction", "add --section SourceCounters")
_NO_LINES = Unknown(
    "the kernel was compiled without line numbers", "compile it with nvcc -lineinfo; Triton and Numba write them"
)
_NO_PTX = Unknown("the kernel has no PTX text with it", "compile it with nvcc -lineinfo")
_NOT_LOADED = Unknown("the report does not tell where the kernel's machine code was loaded")
_OLDER = Unknown("instructions of GPUs before Volta are not looked into")
_NO_CUBIN = Unknown("the report does not hold the kernel's machine code", "capture it with ncu 2021.2 or newer")


class _Function(NamedTuple):
    """A function as it was loaded: the addresses that its instructions have."""

    name: str
    start: int
    size: int
    symbol: int


@frozen
class _Launch:
    """What a kernel has by instruction, as it is stored, and the code that it is of."""

    metrics: Mapping[str, Sequence[bytes]]
    code: StoredCode | None
    addresses: tuple[int, ...]
    known: _StoredKeys


class ReportCodes:
    """Implements `llmtop.model.KernelCodes` over an open report.

    Args:
        file: The report; kept open.
        kernels: Where each row's message lies.
        sources: Where the codes lie, in the order of the file.
        names: The metric names, by the index that messages use.
        mangled: Of each row the name of its function.
        has_others: Whether the report has other results than kernels: NVIDIA's reader counts these too.
    """

    def __init__(
        self,
        file: ReportFile,
        kernels: Sequence[Extent],
        sources: Sequence[Extent],
        names: Sequence[str],
        *,
        has_others: bool = False,
    ) -> None:
        self._file, self._kernels, self._names, self._has_others = file, kernels, names, has_others
        self._folders: tuple[Path, ...] = ()
        # Caches of methods would tie this object, and with it the open file, into reference cycles.
        self._find = partial(_code_of, file, lru_cache(1)(partial(_codes_by_id, file, tuple(sources))))
        self._launch = lru_cache(_KEPT)(partial(_launch, file, kernels, names, self._find))
        self._code = lru_cache(_KEPT)(partial(_kernel_code, file, self._launch))

    def fused_half(self, i: int) -> Mapping[int, bool] | Unknown:
        return _fused_half(self._file, self._launch(i))

    def within(self, folders: Sequence[Path]) -> ReportCodes:
        """The same, that looks for source files in these folders too."""
        same = ReportCodes(self._file, self._kernels, (), self._names, has_others=self._has_others)
        same._find, same._launch, same._code = self._find, self._launch, self._code
        same._folders = tuple(folders)
        return same

    def code(self, i: int) -> KernelCode | Unknown:
        return self._code(i)

    def metrics(self, i: int) -> frozenset[str]:
        return frozenset(self._launch(i).metrics)

    def values(self, i: int, metric: str) -> Mapping[int, float]:
        launch = self._launch(i)
        return _by_address(launch.metrics.get(metric, ()), launch.known)

    def source(self, i: int, file: str) -> SourceText | Unknown:
        code = self._launch(i).code
        extent = None if code is None else next((at for path, at in code.files.items() if clean(path) == file), None)
        if extent is not None and extent.size <= MAX_SOURCE:
            return SourceText(source_lines(self._file.read(extent)), "in the report")
        known = self._code(i)
        sizes = {} if isinstance(known, Unknown) else dict(zip(known.files, known.file_bytes, strict=True))
        return found_source(file, self._folders, sizes.get(file, 0))

    def assembly(self, i: int) -> Mapping[int, str] | Unknown:
        code, launch = self._code(i), self._launch(i)
        if isinstance(code, Unknown):
            return code
        if launch.code is None or launch.code.cubin is None:
            return _NO_CUBIN
        from llmtop.parsers.ncu_rep.assembly import assembly_of

        return assembly_of(self._file, launch.code, code, None if self._has_others else i)


# -- values -----------------------------------------------------------------------------------------------------------


def _launch(
    file: ReportFile,
    kernels: Sequence[Extent],
    names: Sequence[str],
    find: Callable[[int, int], StoredCode | None],
    i: int,
) -> _Launch:
    """Decode what kernel `i` has by instruction.

    Raises:
        FileError: Its bytes are not a kernel.
    """
    try:
        stored = pb.Instanced.FromString(file.read(kernels[i]))
    except DecodeError as error:
        raise FileError(f"{file.path} is corrupted: kernel {i + 1} does not decode; copy it again") from error
    several = {names[one.name]: one.instances for one in stored.metrics if one.instances and one.name < len(names)}
    keys = _StoredKeys()
    told = (instances for name, instances in several.items() if _is_by_instruction(name))
    addresses = {key for instances in told for key in _keys(instances, keys)}
    ours = {name: of for name, of in several.items() if next(_keys(of[:1], keys), None) in addresses}
    code = find(stored.code.id, kernels[i].offset) if stored.HasField("code") else None
    return _Launch(ours, code, tuple(sorted(addresses)), keys)


def _is_by_instruction(name: str) -> bool:
    return name.startswith(_SAMPLED) or name in _EXECUTED


class _StoredKeys(dict[bytes, "int | None"]):
    """What the bytes of keys hold, each decoded once: all metrics of a kernel have the same."""

    def __missing__(self, stored: bytes) -> int | None:
        try:
            value = value_of(pb.Value.FromString(stored))
        except DecodeError:
            value = None
        self[stored] = found = value if isinstance(value, int) else None
        return found


def _parts(instances: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each as they are stored: messages of less than 128 bytes, one behind the other."""
    for one in instances:
        key = 2 + one[1] if len(one) > 2 and one[0] == _KEY else 0
        if key and one[key : key + 1] == _VALUE:
            yield one[2:key], one[key + 2 :]


_KEY, _VALUE = 1 << 3 | 2, bytes([2 << 3 | 2])
"""What stands before them: the fields' numbers, and that their length follows."""


def _keys(instances: Iterable[bytes], known: _StoredKeys) -> Iterator[int]:
    return (found for key, _ in _parts(instances) if (found := known[key]) is not None)


def _by_address(instances: Iterable[bytes], keys: _StoredKeys) -> dict[int, float]:
    values = StoredValues()
    found: dict[int, float] = {}
    for key, stored in _parts(instances):
        address = keys[key]
        try:
            value = values[stored]
        except DecodeError:
            continue
        if address is not None and value is not None and not isinstance(value, str):
            found[address] = value
    return found


# -- code -------------------------------------------------------------------------------------------------------------


def _codes_by_id(file: ReportFile, sources: tuple[Extent, ...]) -> dict[int, list[Extent]]:
    found: dict[int, list[Extent]] = {}
    for extent in sources:
        if (id := stored_id(file, extent)) is not None:
            found.setdefault(id, []).append(extent)
    return found


def _code_of(file: ReportFile, by_id: Callable[[], dict[int, list[Extent]]], id: int, offset: int) -> StoredCode | None:
    """The code of this number, from all parts that are stored of it.

    A cubin comes once, with the first of its kernels, and where further functions were loaded with those. Processes
    number theirs anew: a kernel stands behind its own.
    """
    several = by_id().get(id, [])
    parts = [stored_code(file, one) for one in [part for part in several if part.offset < offset] or several]
    if not parts:
        return None
    parts = parts[max((i for i, part in enumerate(parts) if part.cubin is not None), default=0) :]
    functions = dict.fromkeys(one for part in parts for one in part.functions)
    files = {path: extent for part in parts for path, extent in part.files.items()}
    return replace(parts[0], functions=tuple(functions), files=files)


def _kernel_code(file: ReportFile, launch_of: Callable[[int], _Launch], i: int) -> KernelCode | Unknown:
    launch = launch_of(i)
    code = launch.code
    if not launch.addresses:
        return _NOT_SAMPLED
    if code is None or code.cubin is None:
        return _without_lines(launch, _NO_CUBIN)
    from llmtop.parsers.cubin import Cubin, CubinError

    try:
        cubin = Cubin(partial(_read_within, file, code.cubin), code.cubin.size)
        functions = _functions_hit(code, launch.addresses, cubin)
        return _with_lines(launch, code, functions, cubin) if functions else _without_lines(launch, _NOT_LOADED)
    except CubinError as error:
        return _without_lines(launch, _damaged(error))


def _fused_half(file: ReportFile, launch: _Launch) -> Mapping[int, bool] | Unknown:
    code = launch.code
    if code is None or code.cubin is None:
        return _NO_CUBIN
    if code.major < _FIRST_WIDE:
        return _OLDER
    from llmtop.parsers.cubin import Cubin, CubinError

    try:
        cubin = Cubin(partial(_read_within, file, code.cubin), code.cubin.size)
        functions = _functions_hit(code, launch.addresses, cubin)
        symbols = ((one.start, cubin.function(one.symbol, one.name)) for one in functions)
        return {
            start + offset: computes
            for start, symbol in symbols
            if symbol is not None
            for offset, computes in fused_half(cubin.code(symbol)).items()
        }
    except CubinError as error:
        return _damaged(error)


def _damaged(error: CubinError) -> Unknown:
    return Unknown(f"the kernel's machine code is damaged: {error}", "copy the report again")


def _read_within(file: ReportFile, extent: Extent, offset: int, size: int) -> bytes:
    size = max(0, min(size, extent.size - offset))
    return file.read(Extent(extent.offset + offset, size)) if size else b""


def _functions_hit(code: StoredCode, addresses: Sequence[int], cubin: Cubin) -> list[_Function]:
    """The functions that these are instructions of, by their place in memory."""
    loaded = sorted(code.functions, key=lambda one: one[1])
    starts = [start for _, start, _ in loaded]
    hit = {bisect_right(starts, address) - 1 for address in addresses}
    found = []
    for name, start, index in (loaded[i] for i in sorted(hit) if i >= 0):
        symbol = cubin.function(index, name)
        if symbol is not None and start + symbol.size <= _MEMORY:
            found.append(_Function(name, start, symbol.size, symbol.index))
    return found


def _with_lines(launch: _Launch, code: StoredCode, functions: Sequence[_Function], cubin: Cubin) -> KernelCode:
    """All instructions of these functions, whether they have values or not, and those outside of them that have."""
    addresses = set(launch.addresses)
    if sum(one.size for one in functions) > _MOST_INSTRUCTIONS * WIDE:
        return _without_lines(
            launch, Unknown("the kernel's machine code is damaged: its functions are longer than any")
        )
    if code.major >= _FIRST_WIDE:
        for one in functions:
            addresses.update(range(one.start, one.start + one.size, WIDE))
    rows = _Rows(sorted(addresses))
    for one in functions:
        rows.add(one, cubin)
    return rows.code(cubin.ptx or _NO_PTX)


class _Rows:
    """The columns of a kernel's instructions while they are filled."""

    def __init__(self, addresses: Sequence[int]) -> None:
        self._addresses = addresses
        self._functions: list[str] = [""]
        count = len(addresses)
        self._function_id = array("q", [0]) * count
        self._offsets = array("Q", addresses)
        self._files: dict[SourceName, int] = {}
        self._file_id = array("q", [-1]) * count
        self._line, self._ptx_line = array("q", [0]) * count, array("q", [0]) * count

    def add(self, function: _Function, cubin: Cubin) -> None:
        """Fill the rows of a function."""
        symbol = cubin.function(function.symbol, function.name)
        assert symbol is not None  # it has been found before
        lines, ptx_lines = cubin.lines(symbol), cubin.ptx_lines(symbol)
        self._functions.append(clean(function.name))
        first = bisect_right(self._addresses, function.start - 1)
        for i in range(first, bisect_right(self._addresses, function.start + function.size - 1)):
            offset = self._addresses[i] - function.start
            self._function_id[i], self._offsets[i] = len(self._functions) - 1, offset
            row, ptx_row = lines.at(offset), ptx_lines.at(offset)
            if row is not None and row.file is not None and row.line:
                self._file_id[i] = self._files.setdefault(row.file, len(self._files))
                self._line[i] = row.line
            if ptx_row is not None and ptx_row.file is not None:
                self._ptx_line[i] = ptx_row.line

    def code(self, ptx: tuple[str, ...] | Unknown, why_no_lines: Unknown = _NO_LINES) -> KernelCode:
        """The finished columns."""
        return KernelCode(
            addresses=array("Q", self._addresses),
            functions=tuple(self._functions),
            function_id=self._function_id,
            offsets=self._offsets,
            files=tuple(clean(file.path) for file in self._files),
            file_bytes=tuple(file.size for file in self._files),
            file_id=self._file_id,
            line=self._line,
            ptx_line=self._ptx_line,
            ptx=ptx,
            why_no_lines=None if self._files else why_no_lines,
        )


def _without_lines(launch: _Launch, why: Unknown) -> KernelCode:
    return _Rows(launch.addresses).code(why, why)
