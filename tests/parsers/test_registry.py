"""The one way into files: what is told apart, and what is said of the rest."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import llmtop.parsers
from llmtop.cli.formats import formats
from llmtop.errors import FileError
from llmtop.parsers import compressed
from llmtop.parsers.base import Parser
from llmtop.parsers.registry import MODULES, load, parsers, supported
from tests.parsers.sample_reports import ROOT, kernel, report


def refusal(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        load(path)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_names_are_unique() -> None:
    assert len({parser.name for parser in parsers()}) == len(MODULES)


def test_every_parser_beside_the_registry_is_in_it() -> None:
    with_parser = {name for _, name, _ in iter_modules(llmtop.parsers.__path__) if hasattr(_module(name), "PARSER")}
    assert with_parser == set(MODULES)
    assert len(MODULES) == len(set(MODULES))


def _module(name: str) -> ModuleType:
    return import_module(f"llmtop.parsers.{name}")


def test_messages_and_docs_name_every_format() -> None:
    page = (ROOT / "docs" / "formats.md").read_text()
    assert page == "".join(f"{line}\n" for line in formats()), "make manual, and look at what changed"
    for parser in parsers():
        assert parser.extensions[0] in supported()
        assert f"| {parser.title} | `{parser.extensions[0]}`" in page


@pytest.mark.parametrize("parser", parsers(), ids=lambda parser: parser.name)
def test_a_file_named_like_a_format_that_it_is_not_says_so(parser: Parser, tmp_path: Path) -> None:
    for extension in parser.extensions:
        path = tmp_path / f"x{extension}"
        path.write_bytes(b"<html>not found")
        assert f"is named like {parser.title} but does not start like them" in refusal(path)


@pytest.mark.parametrize("name", ["report.ncu-rep", "report.sqlite", "no suffix", "x.json"])
def test_content_decides_and_not_the_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(report(kernel()))
    assert load(path).origin.kind == "ncu-rep"


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "missing.ncu-rep"
    assert refusal(path) == f"{path} cannot be read: No such file or directory"


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.ncu-rep"
    path.touch()
    assert refusal(path).startswith(f"{path} is empty: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.ncu-rep"
    path.touch(mode=0)
    assert refusal(path) == f"{path} cannot be read: Permission denied"


def test_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} is a directory, not a report; give the path of a file"


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert refusal(path) == f"{path} is a pipe, not a report; give the path of a file"


def test_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("listener")
        assert refusal(Path("listener")) == "listener is a socket, not a report; give the path of a file"


def test_device() -> None:
    assert refusal(Path("/dev/zero")) == "/dev/zero is a device, not a report; give the path of a file"


def test_path_that_cannot_be(tmp_path: Path) -> None:
    assert "is not a path" in refusal(tmp_path / "a\0b")
    assert "File name too long" in refusal(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.ncu-rep", b"<html>not found", "named like Nsight Compute reports but does not start like them"),
        (
            "r.sqlite",
            b"garbage",
            "named like Nsight Systems captures, and profiles of nvprof but does not start like them",
        ),
        ("r", b"garbage", "of no format that llmtop knows"),
        ("r", bytes(5000), "all zeros"),
        ("r.qdstrm", b"QDSTRM\0\0", "an unfinished Nsight Systems capture"),
        ("core", b"\x7fELF\x02", "a program or a process's core dump"),
        ("StringIds.parquet", b"PAR1\x15\4", "open the folder with all tables (nsys export --type parquetdir)"),
        ("out.arrow", b"\xff\xff\xff\xff\xc0\1", "open the folder with all tables (nsys export --type arrowdir)"),
    ],
)
def test_unknown_files_are_told_apart(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert said in refusal(path)
    assert refusal(path).endswith(f"llmtop opens {supported()}")


def test_hostile_file_names_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J\n\udcff.ncu-rep"
    path.write_bytes(report(kernel())[:-2])
    said = refusal(path)
    assert said.startswith(f"{tmp_path}/a␛[2J␊\ufffd.ncu-rep is truncated")
    path.write_bytes(report(kernel()))
    assert load(path).origin.path == f"{tmp_path}/a␛[2J␊\ufffd.ncu-rep"


@given(content=st.binary(min_size=1, max_size=200))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_end_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any"
    path.write_bytes(content)
    refusal(path)


def test_an_unfinished_capture_is_told_by_what_stands_in_its_head(tmp_path: Path) -> None:
    path = tmp_path / "report.qdstrm"
    path.write_bytes(b"U3w\0\0NVIDIA Nsight Systems Stream\0" + bytes(100))
    assert "an unfinished Nsight Systems capture" in refusal(path)
    path.write_bytes(b"NVIDIA Nsight Systems Stream".rjust(64, b"\1"))
    assert "an unfinished Nsight Systems capture" in refusal(path)
    path.write_bytes(b"NVIDIA Nsight Systems Stream".rjust(65, b"\1"))
    assert "is of no format that llmtop knows" in refusal(path), "the text of something else"


def test_a_packed_file_that_is_no_report_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(8 << 20)))
    written: list[int] = []
    pieces = compressed._pieces

    def counted(*arguments: Any) -> Iterator[bytes]:
        for piece in pieces(*arguments):
            written.append(len(piece))
            yield piece

    monkeypatch.setattr(compressed, "_pieces", counted)
    assert refusal(path).startswith(f"{path} is all zeros")
    assert sum(written) < 8 << 20


@pytest.mark.parametrize("name", ["py-spy/0.4.3/demo-server.folded", "ncu/2025.3.1/sgemm-ladder.session.csv"])
@pytest.mark.parametrize("at", [0.3, 0.6])
def test_zeros_in_a_text_are_damage(name: str, at: float, tmp_path: Path) -> None:
    content = bytearray((ROOT / "sample_traces" / name).read_bytes())
    place = int(at * len(content))
    content[place : place + 64] = bytes(64)
    (tmp_path / "file").write_bytes(content)
    assert ("text-damaged", 64) in {(issue.code, issue.count) for issue in load(tmp_path / "file").issues}


def test_a_text_in_utf_16_is_no_damage(tmp_path: Path) -> None:
    text = (ROOT / "sample_traces" / "ncu/2025.3.1/sgemm-ladder.session.csv").read_text()
    (tmp_path / "file").write_bytes(text.encode("utf-16"))
    assert not load(tmp_path / "file").issues


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("# To display the perf.data header info, please use --header/--header-only options.\n#\n", "perf script"),
        (
            "#\n# Samples: 737  of event 'cycles'\n# Overhead  Command\n    27.68%  python  libc  [.] read\n",
            "perf script",
        ),
        ("==7== NVPROF is profiling process 7, command: ./a\n", "nvprof -o"),
        ("\n ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)\n", ".nsys-rep"),
    ],
)
def test_the_summary_of_a_tool_says_what_to_open_instead(tmp_path: Path, text: str, hint: str) -> None:
    path = tmp_path / "printed.txt"
    path.write_text(text)
    with pytest.raises(FileError, match="prints") as told:
        load(path)
    assert hint in str(told.value)
