"""Core dumps of GPUs: what cuda-gdb says of one, what was planted in it, and damage."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import random
import re
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from llmtop.analysis.rules.gpu_fault import accessed
from llmtop.analysis.rules.registry import diagnose
from llmtop.cli.report import report
from llmtop.errors import FileError
from llmtop.model import FailedWarp, Severity, Trace, Unknown
from llmtop.parsers import cuda_core_dump
from llmtop.parsers.cuda_core_dump import EXCEPTIONS, PARSER, readable
from llmtop.parsers.elf import ElfSections
from llmtop.parsers.registry import load
from tests.parsers.sample_reports import OTHERS, SAMPLE_TRACES

FOLDER = SAMPLE_TRACES / "cuda-core" / "13.0"
DUMP = FOLDER / "misaligned-store.nvcudmp.gz"
STORE = "@!P0 STG.E.STRONG.SYS desc[UR4][R4.64+0x1], R9"
ORACLE = OTHERS / "h100_misaligned_store.cuda-gdb.txt"


@pytest.fixture(scope="module")
def whole() -> bytes:
    return gzip.decompress(DUMP.read_bytes())


@pytest.fixture
def disassembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nvdisasm says of the instruction, so that no test takes one."""
    monkeypatch.setattr(cuda_core_dump, "disassembled", lambda cubin, functions: {functions[0][1]: {0xC0: STORE}})


def read(data: bytes, folder: Path) -> Trace:
    path = folder / "core"
    path.write_bytes(data)
    return load(path)


@pytest.mark.usefixtures("disassembler")
def test_the_thread_that_was_planted_is_named() -> None:
    """Thread 1077 of blocks of 256: block 4, thread 53, which is lane 21 of its warp; cuda-gdb names lane 0."""
    [fault] = load(DUMP).faults
    assert (fault.exception, fault.code) == ("Warp Misaligned Address", 6)
    assert fault.stood == FailedWarp(1, (16, 1, 1), (256, 1, 1), (4, 0, 0), (53, 0, 0), lanes=32, lane=21)
    assert (fault.kernel, fault.sm, fault.offset, fault.is_exact) == ("kv_trap", 124, 0xC0, True)
    assert (fault.place, fault.instruction) == ("/srv/llm/crash.cu:3", STORE)
    assert accessed(fault) == 0x7FCA1BE00001


@pytest.mark.skipif(not ORACLE.exists(), reason="../shared/samples has what cuda-gdb says, which is not shipped")
def test_the_same_as_cuda_gdb_says() -> None:
    said = ORACLE.read_text()
    [fault] = load(DUMP).faults
    assert f"CUDA Exception: {fault.exception}" in said
    assert f"triggered at PC {fault.pc:#x}" in said
    assert f"{fault.kernel}<<<(16,1,1),(256,1,1)>>> () at {fault.place}" in said
    assert re.search(r"block \(4,0,0\), thread \(32,0,0\), device 0, sm 124, warp 1", said)


def test_a_store_whose_warp_had_ended_is_told_by_its_multiprocessor() -> None:
    """cuda-gdb: "Warp Illegal Address", "far_store(float*) (gpu_faults.cu:31 ... inlined from gpu_faults.cu:46)"."""
    trace = load(FOLDER / "illegal-store.nvcudmp.xz")
    [fault] = trace.faults
    assert (fault.exception, fault.kernel, fault.function, fault.offset) == (
        "Warp Illegal Address",
        "far_store",
        "far_store",
        0xA0,
    )
    assert (fault.sm, fault.stood, fault.pc, fault.place) == (
        131,
        None,
        0x7F44977AC2A0,
        "/srv/llm/examples/gpu_faults.cu:46",
    )
    [finding] = diagnose(trace).findings
    assert finding.message.endswith("gpu_faults.cu:46, in a thread that had ended before the GPU was read")
    assert "memcheck" in finding.action
    [row] = csv.DictReader(io.StringIO("".join(report(trace, "csv"))))
    assert (row["exception"], row["sm"], row["warp"], row["block_index_x"]) == ("Warp Illegal Address", "131", "", "")


def test_a_trap_is_told_though_the_gpu_calls_it_no_exception() -> None:
    """cuda-gdb: "SIGTRAP", "trap<<<(8,1,1),(64,1,1)>>> () at gpu_faults.cu:105", pc trap+112, thread (37,0,0)."""
    [fault] = (trace := load(FOLDER / "trap.nvcudmp.xz")).faults
    assert (fault.exception, fault.code, fault.kernel, fault.offset) == ("Trap or breakpoint", 0, "trap", 112)
    assert fault.stood == FailedWarp(1, (8, 1, 1), (64, 1, 1), (3, 0, 0), (37, 0, 0), lanes=1, lane=None)
    [finding] = diagnose(trace).findings
    assert finding.message.endswith("gpu_faults.cu:105, block (3,0,0), thread (37,0,0)")
    assert "__trap()" in finding.action


def test_dumps_of_drivers_that_keep_no_exception_of_a_multiprocessor_are_read(tmp_path: Path) -> None:
    """Before driver 555 an entry was of 8 bytes: the number alone."""
    data = bytearray(lzma.decompress((FOLDER / "illegal-store.nvcudmp.xz").read_bytes()))
    table = data.index(struct.pack("<Q", 48), len(data) - 161 * 64)  # the size of its entries, in the table of sections
    struct.pack_into("<Q", data, table, 8)
    assert read(bytes(data), tmp_path).faults == ()


@pytest.mark.usefixtures("disassembler")
def test_the_finding_says_what_who_where_and_what_to_do() -> None:
    [finding] = diagnose(load(DUMP)).findings
    assert (finding.rule, finding.severity, finding.subject) == ("gpu-fault", Severity.ERROR, "kv_trap")
    assert finding.message == "Warp Misaligned Address at /srv/llm/crash.cu:3, block (4,0,0), thread (53,0,0)"
    assert "of 32 threads of the warp this one alone passed the predicate of the instruction" in finding.evidence
    assert "address 0x7fca1be00001, as the registers stand" in finding.evidence
    assert "multiple of its size" in finding.action
    unpacked = str(DUMP).removesuffix(".gz")
    assert finding.next_command == f"gunzip -k {DUMP} && cuda-gdb -ex 'target cudacore {unpacked}'"


@pytest.mark.usefixtures("disassembler")
@pytest.mark.parametrize(
    ("name", "before", "opened"),
    [
        ("core", "", "core"),
        ("core.xz", "unxz -k {} && ", "core"),
        ("core.zst", "unzstd {} && ", "core"),
        ("a core.gz", "gunzip -k '{}' && ", "a core"),
    ],
)
def test_the_debugger_is_given_what_is_unpacked(name: str, before: str, opened: str) -> None:
    trace = load(DUMP)
    trace = replace(trace, origin=replace(trace.origin, path=f"/srv/{name}"))
    [finding] = diagnose(trace).findings
    unpacking = before.format(f"/srv/{name}")
    assert finding.next_command == f"{unpacking}cuda-gdb -ex 'target cudacore /srv/{opened}'"


def test_no_profiler_is_suggested_for_what_failed() -> None:
    trace = load(DUMP)
    for kind in ("text", "json", "md", "html"):
        said = "".join(report(trace, kind))
        assert "a core dump tells where kernels stood" in said
        assert "nsys profile" not in said
        assert "COMMAND stands for" not in said


@pytest.mark.usefixtures("disassembler")
def test_csv_has_a_row_for_each_warp_that_failed() -> None:
    [row] = csv.DictReader(io.StringIO("".join(report(load(DUMP), "csv"))))
    assert (row["exception"], row["kernel"], row["place"]) == (
        "Warp Misaligned Address",
        "kv_trap",
        "/srv/llm/crash.cu:3",
    )
    assert (row["block_index_x"], row["thread_index_x"], row["lane"]) == ("4", "53", "21")
    assert (row["address"], row["instruction"], row["missing"]) == (str(0x7FCA1BE00001), f"'{STORE}", "")


def test_without_a_disassembler_the_place_is_known_and_the_text_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    why = Unknown("no disassembler")
    monkeypatch.setattr(cuda_core_dump, "disassembled", lambda cubin, functions: why)
    [fault] = load(DUMP).faults
    assert (fault.instruction, fault.place, accessed(fault)) == (why, "/srv/llm/crash.cu:3", None)


def sections(data: bytes, kind: int) -> list[tuple[int, int]]:
    """Where the sections of a kind lie."""
    elf = ElfSections(lambda at, size: data[at : at + size], len(data))
    return [(one.offset, one.size) for one in elf.sections if one.kind == 0x8000_0000 + kind]


@pytest.mark.usefixtures("disassembler")
def test_where_several_threads_pass_the_predicate_none_is_named(whole: bytes, tmp_path: Path) -> None:
    data = bytearray(whole)
    for offset, size in sections(whole, 17):
        data[offset : offset + size] = bytes(size)  # no predicate holds, and the instruction is for those without it
    [fault] = read(bytes(data), tmp_path).faults
    assert fault.stood is not None
    assert (fault.stood.lane, fault.stood.thread_index) == (None, (32, 0, 0))
    [finding] = diagnose(Trace(load(DUMP).origin, faults=(fault,))).findings
    assert "one of 32 threads from (32,0,0) on" in finding.message


@pytest.mark.usefixtures("disassembler")
def test_threads_that_wait_at_a_branch_are_not_those_that_failed(whole: bytes, tmp_path: Path) -> None:
    """The exception stands with all threads of the warp, and its mask of active ones tells who was at it."""
    data = bytearray(whole)
    for offset, size in sections(whole, 14):
        for at in range(offset, offset + size, 64):
            struct.pack_into("<I", data, at + 16, 1 << 5)
    [fault] = read(bytes(data), tmp_path).faults
    assert fault.stood is not None
    assert (fault.stood.lanes, fault.stood.thread_index) == (1, (37, 0, 0))


@pytest.mark.usefixtures("disassembler")
def test_every_exception_is_told_in_words(whole: bytes, tmp_path: Path) -> None:
    for code in (*EXCEPTIONS, 99):
        data = bytearray(whole)
        for offset, size in sections(whole, 15):
            for at in range(offset, offset + size, 56):
                if struct.unpack_from("<I", data, at + 32) != (0,):
                    struct.pack_into("<I", data, at + 32, code)
        [fault] = read(bytes(data), tmp_path).faults
        assert fault.exception == EXCEPTIONS.get(code, "exception 99")
        assert all(finding.action for finding in diagnose(Trace(load(DUMP).origin, faults=(fault,))).findings)


def test_exceptions_are_numbered_without_gaps_as_the_debugger_lists_them() -> None:
    assert list(EXCEPTIONS) == list(range(1, 20))


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9, 0.999])
def test_one_that_was_cut_short_says_so_and_what_to_do(whole: bytes, tmp_path: Path, share: float) -> None:
    with pytest.raises(FileError, match=r"cut short.*skip_abort.*skip_constbank_memory"):
        read(whole[: int(len(whole) * share)], tmp_path)


@pytest.mark.usefixtures("disassembler")
def test_damage_is_one_line_or_costs_what_it_is_in(whole: bytes, tmp_path: Path) -> None:
    draw = random.Random(5)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 20, 400))):
            data[draw.randrange(20, len(data))] = draw.randrange(256)
        with suppress(FileError):
            trace = read(bytes(data), tmp_path)
            assert len(trace.faults) <= cuda_core_dump.MOST_FAULTS
            diagnose(trace)


def test_a_process_of_the_cpu_is_none(tmp_path: Path) -> None:
    path = tmp_path / "core"
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 4, 62) + bytes(100))
    with pytest.raises(FileError, match="a program or a process's core dump"):
        load(path)
    assert not PARSER.sniff(b"\x7fELF\x02\x01", path)


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z7kv_trapPfi", "kv_trap"),
        ("_ZN4vllm3addIfEEvPT_", "vllm::add"),
        ("_ZN12_GLOBAL__N_14moveEPi", "_GLOBAL__N_1::move"),
        ("plain", "plain"),
        ("_Z", "_Z"),
        ("_Z99short", "short"),
        ("\x1b[2J", "␛[2J"),
    ],
)
def test_names_of_functions_are_readable(mangled: str, name: str) -> None:
    assert readable(mangled) == name
