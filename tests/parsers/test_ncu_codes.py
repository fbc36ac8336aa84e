"""The instructions of reports: values, lines and PTX as NVIDIA's own reader has them; damage costs what it is of."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmtop.errors import FileError
from llmtop.model import KernelCode, KernelCodes, SourceText, Unknown
from llmtop.parsers import disassembly
from llmtop.parsers.cubin import Cubin, CubinError
from llmtop.parsers.ncu_rep.container import ReportFile, read_blocks
from llmtop.parsers.ncu_rep.ncu_rep_pb2 import Instance, Metric, Value
from llmtop.parsers.ncu_rep.sources import StoredCode, stored_code
from llmtop.parsers.registry import load
from tests.parsers.forked import in_a_child
from tests.parsers.sample_reports import DECODE, LADDER, content, different_ncu_reports, kernel, report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CONFLICTS = LADDER.with_name("bank-conflicts.ncu-rep.xz")
FEW = LADDER.with_name("few-metrics.ncu-rep.xz")
MOST_KERNELS = 2
DAMAGE = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=15
)


def codes_of(path: Path) -> KernelCodes:
    kernels = load(path).kernels
    assert kernels is not None
    assert kernels.codes is not None
    return kernels.codes


def known(codes: KernelCodes, i: int) -> KernelCode:
    code = codes.code(i)
    assert not isinstance(code, Unknown), code
    return code


def ptx_line(code: KernelCode, i: int) -> str:
    number = code.ptx_line[i]
    return "" if isinstance(code.ptx, Unknown) or not 0 < number <= len(code.ptx) else code.ptx[number - 1]


@pytest.mark.parametrize("path", different_ncu_reports(), ids=lambda path: path.name)
def test_values_lines_and_ptx_are_those_of_nvidias_reader(path: Path, tmp_path: Path) -> None:
    reader = pytest.importorskip("ncu_report", reason="needs NVIDIA's reader: pip install ncu-report")
    plain = tmp_path / "report.ncu-rep"
    plain.write_bytes(content(path))
    in_a_child(lambda: codes_are_those_of_the_reader(reader, plain))


def codes_are_those_of_the_reader(reader: Any, plain: Path) -> None:
    codes = codes_of(plain)
    for i, action in enumerate([one for group in reader.load_report(str(plain)) for one in group][:MOST_KERNELS]):
        code = codes.code(i)
        if isinstance(code, Unknown):
            assert action.metric_by_name("smsp__pcsamp_sample_count") is None
            assert code.remedy == "add --section SourceCounters"
            continue
        for name in codes.metrics(i):
            assert dict(codes.values(i, name)) == by_address(action.metric_by_name(name)), name
        for row, address in enumerate(code.addresses):
            assert line_of(code, row) == told_line(action, address), hex(code.offsets[row])
            assert ptx_line(code, row).split() == action.ptx_by_pc(address).split(), hex(code.offsets[row])


def by_address(metric: Any) -> dict[int, float]:
    keys = metric.correlation_ids()
    return {keys.as_uint64(i): metric.value(i) for i in range(metric.num_instances())}


def line_of(code: KernelCode, row: int) -> tuple[str, int]:
    return (code.files[code.file_id[row]] if code.file_id[row] >= 0 else "", code.line[row])


def told_line(action: Any, address: int) -> tuple[str, int]:
    info = action.source_info(address)
    return (info.file_name(), info.line()) if info else ("", 0)


def test_a_line_of_the_source_is_the_one_in_the_report() -> None:
    codes = codes_of(LADDER)
    code = known(codes, 2)
    assert code.files == ("/srv/llm/ladder.cu",)
    assert set(code.line) == {5}
    text = codes.source(2, code.files[0])
    assert isinstance(text, SourceText)
    assert (text.found, text.doubt) == ("in the report", "")
    assert text.lines[4].startswith("__global__ void sgemm_smem(int N,")


def test_kernels_of_one_cubin_are_each_of_their_own_function() -> None:
    codes = codes_of(LADDER)
    assert [known(codes, i).functions[1] for i in range(3)] == [
        "_Z11sgemm_naiveiPKfS0_Pf",
        "_Z15sgemm_coalescediPKfS0_Pf",
        "_Z10sgemm_smemiPKfS0_Pf",
    ]
    code = known(codes, 2)
    assert list(code.offsets[:3]) == [0, 16, 32]
    assert len(code) == 2048 // 16, "all instructions, whether they were sampled or not"


@pytest.mark.parametrize(("major", "instructions"), [(6, 120), (7, 128)])
def test_before_volta_instructions_are_those_that_have_values(major: int, instructions: int, tmp_path: Path) -> None:
    """Of 128 in the loop 120 were executed; the sixth field of a source is its architecture, 9.0 as it was captured."""
    path, captured = tmp_path / "report.ncu-rep", b"\x30\x80\x80\x24"
    data = content(LADDER)
    assert data.count(captured) == 2
    path.write_bytes(data.replace(captured, b"\x30\x80\x80" + bytes([major << 2])))
    code = known(codes_of(path), 2)
    assert (len(code), set(code.line)) == (instructions, {5})


def test_a_kernel_without_line_numbers_says_what_makes_them() -> None:
    code = known(codes_of(DECODE), 0)
    assert code.why_no_lines is not None
    assert "-lineinfo" in code.why_no_lines.remedy
    assert set(code.line) == {0}
    assert isinstance(code.ptx, Unknown)


def test_what_was_not_collected_by_instruction_says_what_collects_it() -> None:
    assert codes_of(FEW).code(0) == Unknown("nothing was collected by instruction", "add --section SourceCounters")


# -- source files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def without_text(tmp_path: Path) -> Path:
    """A report that names its source and does not hold it: the name under which it does is another one."""
    path = tmp_path / "report.ncu-rep"
    data = content(LADDER)
    assert data.count(b"\x12/srv/llm/ladder.cu\x12") == 1
    path.write_bytes(data.replace(b"\x12/srv/llm/ladder.cu\x12", b"\x12/srv/llm/xadder.cu\x12"))
    return path


def test_a_source_is_found_in_a_folder_by_the_end_of_its_path(without_text: Path, tmp_path: Path) -> None:
    codes = codes_of(without_text)
    why = codes.source(0, "/srv/llm/ladder.cu")
    assert isinstance(why, Unknown)
    assert why.remedy == "name its folder: --source-dir DIR"
    folder = tmp_path / "checkout"
    (folder / "llm").mkdir(parents=True)
    (folder / "ladder.cu").write_text("the wrong one")
    (folder / "llm" / "ladder.cu").write_bytes(b"one\r\ntwo\x1b[2J\n\tthree\n")
    text = codes.within([tmp_path / "none", folder]).source(0, "/srv/llm/ladder.cu")
    assert isinstance(text, SourceText)
    assert text.lines == ("one", "two␛[2J", "    three")
    assert text.found == str(folder / "llm" / "ladder.cu")
    assert text.doubt == "changed since: 20 bytes, 1766 when it was compiled"


def test_nothing_outside_of_the_folders_is_opened(without_text: Path, tmp_path: Path) -> None:
    folder, secret = tmp_path / "folder", tmp_path / "secret.cu"
    folder.mkdir()
    secret.write_text("secret")
    (folder / "link.cu").symlink_to(secret)
    codes = codes_of(without_text).within([folder])
    for name in (
        "../secret.cu",
        "/a/../../secret.cu",
        str(secret),
        "link.cu",
        "",
        "/",
        "..",
        "a" * 5000,
        "b/" * 5000,
        "\0",
    ):
        assert isinstance(codes.source(0, name), Unknown), name


# -- texts of instructions --------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes disassemblers; there are no others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(disassembly, "_folders", lambda: iter([str(folder)]))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def make(name: str, script: str) -> None:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return make


NVDISASM = """
[ "$1 $2" = "-c -fun" ] || exit 1
head -c 4 "$4" | grep -q ELF || exit 1
cat <<'END'
\t.section\t.text._Z10sgemm_smemiPKfS0_Pf,"ax",@progbits
.text._Z10sgemm_smemiPKfS0_Pf:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/              @!P0 BRA   `(.L_x_1) ;
END
"""
CUOBJDUMP = """
cat <<'END'
\t\tFunction : _Z10sgemm_smemiPKfS0_Pf
        /*0000*/                   MOV R1, c[0x0][0x28] ;    /* 0x00000a0000017a02 */
                                                             /* 0x000fe20000000f00 */
END
"""


def test_instructions_are_read_from_what_a_disassembler_writes(tools: Callable[[str, str], None]) -> None:
    tools("nvdisasm", NVDISASM)
    codes = codes_of(LADDER)
    first = known(codes, 2).addresses[0]
    assert codes.assembly(2) == {first: "LDC R1, c[0x0][0x28]", first + 16: "@!P0 BRA `(.L_x_1)"}


def test_where_one_cannot_the_next_disassembler_does(tools: Callable[[str, str], None]) -> None:
    tools("nvdisasm", "echo 'nvdisasm fatal: too old' >&2; exit 255")
    tools("cuobjdump", CUOBJDUMP)
    codes = codes_of(LADDER)
    assert codes.assembly(2) == {known(codes, 2).addresses[0]: "MOV R1, c[0x0][0x28]"}


def test_without_a_disassembler_nvidias_reader_is_asked(tools: Callable[[str, str], None]) -> None:
    pytest.importorskip("ncu_report", reason="needs NVIDIA's reader: pip install ncu-report")
    codes = codes_of(LADDER)  # unpacked into a file that has no name any more
    texts = codes.assembly(2)
    assert not isinstance(texts, Unknown), texts
    assert texts[known(codes, 2).addresses[0]] == "LDC R1, c[0x0][0x28]"
    assert len(texts) == len(known(codes, 2))


def test_without_any_the_reason_and_the_remedy_are_told(
    tools: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmtop.parsers.ncu_rep.assembly.find_spec", lambda name: None)
    assert codes_of(LADDER).assembly(2) == Unknown("this machine has no disassembler", disassembly.REMEDY)
    tools("nvdisasm", "echo 'nvdisasm fatal: \x1b[2Jtoo old' >&2; exit 255")
    why = codes_of(LADDER).assembly(2)
    assert isinstance(why, Unknown)
    assert why.reason == "nvdisasm does not disassemble it: nvdisasm fatal: ␛[2Jtoo old"


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ladder() -> bytes:
    return content(LADDER)


@pytest.fixture(scope="module")
def cubin(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The machine code of the ladder."""
    plain = tmp_path_factory.mktemp("cubin") / "ladder.ncu-rep"
    plain.write_bytes(content(LADDER))
    file = ReportFile(plain)
    (first, *_) = [extent for block in read_blocks(file) for extent in block.sources]
    code = stored_code(file, first)
    assert isinstance(code, StoredCode)
    assert code.cubin is not None
    return file.read(code.cubin)


def look_through(data: bytes) -> int:
    """Ask for all that there is; how many functions had lines."""
    whole = Cubin(lambda offset, size: data[offset : offset + size], len(data))
    found = 0
    for symbol in range(40):
        function = whole.function(symbol, "_Z10sgemm_smemiPKfS0_Pf")
        if function is not None:
            found += whole.lines(function).at(0) is not None
            whole.ptx_lines(function)
    assert isinstance(whole.ptx, tuple)
    return found


def told(data: bytes) -> str:
    """What is wrong with it; empty where nothing that was looked at is."""
    try:
        look_through(data)
    except CubinError as error:
        return str(error) or "it does not say what"
    return ""


@DAMAGE
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=8)), max_size=12), st.floats(0, 1))
def test_a_damaged_cubin_is_told_or_read(cubin: bytes, changes: list[tuple[int, bytes]], kept: float) -> None:
    data = bytearray(cubin)
    for at, new in changes:
        data[at % len(data) : at % len(data) + len(new)] = new
    assert "\n" not in told(bytes(data[: int(len(data) * kept)]) if kept < 0.9 else bytes(data))


def test_the_lines_of_a_whole_cubin_are_found(cubin: bytes) -> None:
    assert look_through(cubin) == 40
    assert told(cubin) == ""
    assert told(cubin[:5000]) == "its table of sections does not fit into it"
    assert told(b"no cubin") == "it is no ELF file of 64 bits"


def test_every_byte_of_the_line_tables_may_be_anything(cubin: bytes) -> None:
    """Wrong versions, sizes of 4 GB, lines below nothing, programs without an end."""
    begin = cubin.index(b"/srv/llm\0") - 24
    for at in range(begin, begin + 160, 3):
        changed = bytearray(cubin)
        changed[at] = (0, 1, 0x7F, 0x80, 0xFF)[at % 5]
        told(bytes(changed))


@DAMAGE
@given(st.integers(0, 46_000), st.binary(min_size=1, max_size=6))
def test_damage_where_code_is_stored_costs_a_sentence(tmp_path: Path, ladder: bytes, at: int, new: bytes) -> None:
    data = bytearray(ladder)
    data[192 + at : 192 + at + len(new)] = new
    path = tmp_path / "damaged.ncu-rep"
    path.write_bytes(data)
    assert "\n" not in refused(path)


def refused(path: Path) -> str:
    """Why the code of the first kernel cannot be read; empty where it is there, or a reason stands in its place."""
    try:
        codes = codes_of(path)
        code = codes.code(0)
        if not isinstance(code, Unknown):
            [codes.source(0, file) for file in code.files]
            assert len(code) >= 100, "what was sampled is there whatever the code is"
    except FileError as error:
        return str(error)
    return ""


def test_addresses_at_the_end_of_memory_are_addresses(tmp_path: Path) -> None:
    highest = (1 << 64) - 16
    samples = Metric(
        name=0, value=Value(uint64=7), instances=[Instance(key=Value(uint64=highest), value=Value(uint64=7))]
    )
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(report(kernel(metrics=[samples]), names=[b"smsp__pcsamp_sample_count"]))
    codes = codes_of(path)
    assert list(known(codes, 0).addresses) == [highest]
    assert codes.values(0, "smsp__pcsamp_sample_count") == {highest: 7}
    assert "machine code" in str(known(codes, 0).why_no_lines)


def test_a_cubin_is_not_read_before_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "report.ncu-rep"
    plain.write_bytes(content(CONFLICTS))
    asked: list[int] = []
    read = os.pread

    def noted(fd: int, size: int, offset: int) -> bytes:
        asked.append(size)
        return read(fd, size, offset)

    monkeypatch.setattr(os, "pread", noted)
    file = ReportFile(plain)
    (source, *_) = [extent for block in read_blocks(file) for extent in block.sources]
    assert source.size > 400_000
    asked.clear()
    assert stored_code(file, source).cubin is not None
    assert 0 < sum(asked) < 10_000
