"""Where in its code a kernel's warps wait: by instruction, and by line of its source.

What was sampled and counted is of instructions; a line's numbers are the sums of the instructions made from it. Samples
are of warps: one that issues is counted among them, and is no waiting (the Kernel Profiling Guide, warp states).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

from llmtop.analysis.kernels import counters as c
from llmtop.analysis.kernels.stalls import FEW_SAMPLES, ISSUING, costliest, sampled_reason
from llmtop.analysis.kernels.table import kernels_of
from llmtop.frozen import frozen
from llmtop.model import KernelCode, KernelCodes, SourceText, Trace, Unknown

_WARP = 32
_SECTOR = 32
"""Bytes of one of L2."""
_EXECUTED = "inst_executed"
_THREADS = ("thread_inst_executed_true", "thread_inst_executed")
"""The first that was collected: with its predicate on, or whatever it was."""
_L2, _L2_EXCESS = "memory_l2_theoretical_sectors_global", "derived__memory_l2_theoretical_sectors_global_excessive"
_SHARED, _SHARED_EXCESS = "memory_l1_wavefronts_shared", "derived__memory_l1_wavefronts_shared_excessive"
_NO_SAMPLES = Unknown("the warps were not sampled", c.add_section("SourceCounters"))
NO_CODE = Unknown("no kernel of this capture was looked into by instruction", c.add_section("SourceCounters"))
_PRINTED = Unknown("a printed page has no instructions", "open the .ncu-rep that it was printed from")


@frozen
class Spent:
    """What was seen of an instruction, or of several together; None where it was not collected.

    Attributes:
        samples: Of its warps, issuing ones among them.
        waiting: Those that waited, by reason, the most first.
        not_issued: Those of them in cycles in which the scheduler issued nothing: the waiting that cost something.
        executed: How often a warp executed it.
        threads: How often a thread did.
        l2_bytes: Asked of L2 for global memory; `l2_excess` of these beyond what its access pattern needs at least.
        shared: Wavefronts of shared memory; `shared_excess` alike.
    """

    samples: float | None
    waiting: tuple[tuple[str, float], ...]
    not_issued: float | None
    executed: float | None
    threads: float | None
    l2_bytes: float | None
    l2_excess: float | None
    shared: float | None
    shared_excess: float | None

    @property
    def stalls(self) -> float:
        """Samples that waited for anything."""
        return sum(count for _, count in self.waiting)

    @property
    def thread_share(self) -> float | None:
        """Of the threads of the warps that executed it, how many did; 0 to 1."""
        return self.threads / (_WARP * self.executed) if self.threads is not None and self.executed else None

    @property
    def top(self) -> tuple[str, float] | None:
        """What it waits for most, and the share of its waiting; None where it does not wait."""
        stalls = self.stalls
        if not stalls:
            return None
        reason, count = costliest(self.waiting)
        return reason, count / stalls


@frozen
class CodeLine:
    """A line of the source with its instructions, by their place in `KernelCode`."""

    file: str
    line: int
    instructions: array[int]
    spent: Spent


@frozen
class LinelessFunction:
    """The instructions of a function that no line is known of, by their place in `KernelCode`."""

    function: str
    instructions: array[int]
    spent: Spent


class KernelSource:
    """One launch, by instruction and by line. All of it is worked out when it is asked for, and kept.

    Attributes:
        launch: The row of the kernel table.
        code: Its instructions.
    """

    def __init__(self, codes: KernelCodes, launch: int, code: KernelCode) -> None:
        self._codes, self.launch, self.code = codes, launch, code
        self._texts: dict[str, SourceText | Unknown] = {}
        metrics = codes.metrics(launch)
        self._reasons = {name: told for name in sorted(metrics) if (told := sampled_reason(name)) is not None}
        counted = {_EXECUTED, *_THREADS, _L2, _L2_EXCESS, _SHARED, _SHARED_EXCESS} & metrics
        self._values = {name: codes.values(launch, name) for name in (*self._reasons, *counted)}

    @property
    def why_no_samples(self) -> Unknown | None:
        """Why it is not known where the warps wait."""
        return None if self._reasons else _NO_SAMPLES

    @cached_property
    def instructions(self) -> tuple[Spent, ...]:
        """What was seen of each, in the order of `code`."""
        return tuple(self._spent((address,)) for address in self.code.addresses)

    @cached_property
    def total(self) -> Spent:
        """All of them together."""
        return self._spent(self.code.addresses)

    @cached_property
    def lines(self) -> tuple[CodeLine, ...]:
        """The lines that instructions were made from, the one with the most waiting first."""
        by_line: dict[tuple[int, int], array[int]] = {}
        for i, (file, line) in enumerate(zip(self.code.file_id, self.code.line, strict=True)):
            if file >= 0:
                by_line.setdefault((file, line), array("q")).append(i)
        addresses = self.code.addresses
        found = [
            CodeLine(self.code.files[file], line, rows, self._spent([addresses[i] for i in rows]))
            for (file, line), rows in by_line.items()
        ]
        return tuple(sorted(found, key=lambda one: (-one.spent.stalls, -(one.spent.executed or 0))))

    @cached_property
    def lineless(self) -> tuple[LinelessFunction, ...]:
        """What was seen of code that no line is known of, by function, the one with the most waiting first.

        It is linked in, or put there by the compiler: divisions, powers, assertions.
        """
        by_function: dict[int, array[int]] = {}
        for i, file in enumerate(self.code.file_id):
            if file < 0 and self.code.addresses[i] in self._seen:
                by_function.setdefault(self.code.function_id[i], array("q")).append(i)
        addresses = self.code.addresses
        found = [
            LinelessFunction(self.code.functions[function], rows, self._spent([addresses[i] for i in rows]))
            for function, rows in by_function.items()
        ]
        reached = (one for one in found if one.spent.samples or one.spent.executed)
        return tuple(sorted(reached, key=lambda one: (-one.spent.stalls, -(one.spent.executed or 0))))

    @cached_property
    def line_places(self) -> Mapping[tuple[str, int], CodeLine]:
        """The lines by file and number."""
        return {(one.file, one.line): one for one in self.lines}

    @cached_property
    def ptx_lines(self) -> Mapping[int, CodeLine]:
        """The lines of the intermediate code that instructions were made from, by their number."""
        by_line: dict[int, array[int]] = {}
        for i, line in enumerate(self.code.ptx_line):
            if line:
                by_line.setdefault(line, array("q")).append(i)
        addresses = self.code.addresses
        return {
            line: CodeLine("", line, rows, self._spent([addresses[i] for i in rows])) for line, rows in by_line.items()
        }

    @cached_property
    def hottest(self) -> tuple[int, ...]:
        """The instructions that wait, by their place, the one that waits most first."""
        stalls = [one.stalls for one in self.instructions]
        return tuple(sorted((i for i, count in enumerate(stalls) if count), key=lambda i: -stalls[i]))

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Those that it was made from, the one with the most waiting first."""
        stalls = dict.fromkeys(self.code.files, 0.0)
        for one in self.lines:
            stalls[one.file] += one.spent.stalls
        return tuple(sorted(stalls, key=lambda file: -stalls[file]))

    @property
    def reasons(self) -> tuple[str, ...]:
        """What its warps wait for, the most first."""
        return tuple(reason for reason, _ in self.total.waiting)

    @property
    def few(self) -> str:
        """That there are too few samples to go by; empty where there are enough."""
        samples = self.total.samples
        return "" if samples is None or samples >= FEW_SAMPLES else f"only {samples:.0f} samples"

    def share(self, spent: Spent, reason: str = "") -> float | None:
        """Of all its waiting, or of that for one reason, 0 to 1."""
        all_of_it = waited(self.total, reason)
        return waited(spent, reason) / all_of_it if all_of_it else None

    def text(self, file: str) -> SourceText | Unknown:
        """A file of its source."""
        if file not in self._texts:
            self._texts[file] = self._codes.source(self.launch, file)
        return self._texts[file]

    def line_text(self, file: str, line: int) -> str | Unknown:
        """One line of it, without its indentation."""
        text = self.text(file)
        if isinstance(text, Unknown):
            return text
        return text.lines[line - 1].strip() if line <= len(text.lines) else Unknown(f"{file} has no line {line}")

    @cached_property
    def assembly(self) -> Mapping[int, str] | Unknown:
        """The texts of its instructions by address; may take seconds."""
        return self._codes.assembly(self.launch)

    @cached_property
    def _sampled(self) -> tuple[dict[int, dict[str, float]], dict[int, float]]:
        """By address the samples of each reason, issuing among them; and those that waited while nothing was issued."""
        by_reason: dict[int, dict[str, float]] = {}
        not_issued: dict[int, float] = {}
        for name, (reason, is_costly) in self._reasons.items():
            for address, count in self._values[name].items():
                if not count:
                    continue
                if not is_costly:
                    counts = by_reason.setdefault(address, {})
                    counts[reason] = counts.get(reason, 0) + count
                elif reason != ISSUING:
                    not_issued[address] = not_issued.get(address, 0) + count
        return by_reason, not_issued

    @cached_property
    def _seen(self) -> frozenset[int]:
        """The instructions of which there is any number."""
        return frozenset().union(*self._values.values())

    @cached_property
    def _unseen(self) -> Spent:
        return self._sums(())

    def _spent(self, addresses: Sequence[int]) -> Spent:
        """Most instructions of long kernels are never reached: of these all is the same."""
        seen = [address for address in addresses if address in self._seen]
        return self._sums(seen) if seen else self._unseen

    def _sums(self, addresses: Sequence[int]) -> Spent:
        by_reason, not_issued = self._sampled
        counts: dict[str, float] = {}
        for address in addresses:
            for reason, count in by_reason.get(address, {}).items():
                counts[reason] = counts.get(reason, 0) + count
        samples = sum(counts.values())
        counts.pop(ISSUING, None)
        l2, l2_excess = (self._sum(name, addresses) for name in (_L2, _L2_EXCESS))
        return Spent(
            samples=samples if self._reasons else None,
            waiting=tuple(sorted(counts.items(), key=lambda one: -one[1])),
            not_issued=sum(not_issued.get(address, 0) for address in addresses) if self._tells_cost else None,
            executed=self._sum(_EXECUTED, addresses),
            threads=next((found for name in _THREADS if (found := self._sum(name, addresses)) is not None), None),
            l2_bytes=None if l2 is None else _SECTOR * l2,
            l2_excess=None if l2_excess is None else _SECTOR * l2_excess,
            shared=self._sum(_SHARED, addresses),
            shared_excess=self._sum(_SHARED_EXCESS, addresses),
        )

    @cached_property
    def _tells_cost(self) -> bool:
        return any(is_costly for _, is_costly in self._reasons.values())

    def _sum(self, name: str, addresses: Iterable[int]) -> float | None:
        """Of a counter; None where no instruction of these has it."""
        values = self._values.get(name)
        found = [values[address] for address in addresses if address in values] if values else None
        return sum(found) if found else None


def waited(spent: Spent, reason: str = "") -> float:
    """Samples that waited, for one reason or for any."""
    return next((count for name, count in spent.waiting if name == reason), 0.0) if reason else spent.stalls


def kernel_source(trace: Trace, launch: int) -> KernelSource | Unknown:
    """One launch by instruction and line, or why not; the last ones are kept."""
    return _kernel_source(trace, launch)


@lru_cache(maxsize=4)
def _kernel_source(trace: Trace, launch: int) -> KernelSource | Unknown:
    codes = None if trace.kernels is None else trace.kernels.codes
    if codes is None:
        return why_no_code(trace) or NO_CODE
    code = codes.code(launch)
    return code if isinstance(code, Unknown) else KernelSource(codes, launch, code)


def has_code(trace: Trace) -> bool:
    """Whether any kernel was looked into by instruction."""
    return trace.kernels is not None and trace.kernels.codes is not None


def why_no_code(trace: Trace, remedy: str = NO_CODE.remedy) -> Unknown | None:
    """Why no kernel was looked into by instruction; None where any was."""
    if has_code(trace):
        return None
    return _PRINTED if trace.origin.is_ncu else Unknown("only Nsight Compute looks into kernels", remedy)


def sampled_launches(trace: Trace, name: str = "") -> tuple[int, ...]:
    """Of each kernel the launch that stands for it, the kernel with the most time first.

    Args:
        trace: Any capture.
        name: A part of the kernel's name, in any case; empty for all.
    """
    has_codes = trace.kernels is not None and trace.kernels.codes is not None
    return kernels_of(trace).standing(name) if has_codes else ()
