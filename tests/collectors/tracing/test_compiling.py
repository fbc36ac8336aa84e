"""Programs compiled by other processes: what these are told and say, with a bcc that is made up."""

from __future__ import annotations

import ctypes
import io
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmtop.collectors.tracing.bcc.helper import compiled, compiler, programs
from llmtop.collectors.tracing.bcc.helper.compiled import CompileRequest
from llmtop.collectors.tracing.bcc.helper.programs import Programs, ProgramText
from llmtop.collectors.tracing.helper.system import UnavailableError

LOAD_OF_MAP = struct.pack("<BBHI", 0x18, 0x11, 0, 7) + bytes(8)
PLAIN = bytes.fromhex("b700000000000000")
UNIT: dict[str, Any] = {
    "maps": {"calls": [1, 8, 256, 16384, 0], "lost": [2, 4, 8, 1, 3]},
    "functions": {
        "on_call": {"code": (PLAIN + LOAD_OF_MAP[:4] + bytes(12) + PLAIN).hex(), "maps": [[12, "calls"]]},
        "on_return": {"code": PLAIN.hex(), "maps": []},
    },
}


class Function:
    """One of libbcc's: called as its types say."""

    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer
        self.restype: Any = None
        self.argtypes: list[Any] = []

    def __call__(self, module: Any, *arguments: Any) -> Any:
        assert module == "the module"
        return self._answer(*arguments)


class Library:
    """libbcc, as far as it tells of what it has compiled."""

    def __init__(self) -> None:
        tables = [(b"calls", 7, (1, 8, 256, 16384, 0)), (b"lost", 9, (2, 4, 8, 1, 3))]
        self.codes = {b"on_call": ctypes.create_string_buffer(PLAIN + LOAD_OF_MAP + PLAIN, 32),
                      b"on_return": ctypes.create_string_buffer(PLAIN, 8)}  # fmt: skip
        names = list(self.codes)
        answers: dict[str, Callable[..., Any]] = {
            "bpf_num_tables": lambda: len(tables),
            "bpf_table_name": lambda i: tables[i][0],
            "bpf_table_fd_id": lambda i: tables[i][1],
            "bpf_num_functions": lambda: len(names),
            "bpf_function_name": lambda i: names[i],
            "bpf_function_start": lambda name: ctypes.addressof(self.codes[name]),
            "bpf_function_size": lambda name: len(self.codes[name]),
        }
        for place, field in enumerate(("type", "key_size", "leaf_size", "max_entries", "flags")):
            answers[f"bpf_table_{field}_id"] = lambda i, place=place: tables[i][2][place]
        for name, answer in answers.items():
            setattr(self, name, Function(answer))


@pytest.fixture
def bcc(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The Python part of bcc: a class that compiles, beside the library."""
    made = SimpleNamespace(lib=Library(), told=[], complains="", raises=None)

    def bpf(*, text: str, cflags: list[str]) -> SimpleNamespace:
        made.told.append((text, cflags, os.environ["BCC_KERNEL_SOURCE"]))
        os.write(2, made.complains.encode())
        if made.raises:
            raise made.raises
        return SimpleNamespace(module="the module")

    made.BPF = bpf
    monkeypatch.setitem(sys.modules, "bcc", made)
    monkeypatch.setenv("BCC_KERNEL_SOURCE", "")
    return made


def test_a_unit_is_what_another_process_needs_to_load_it(bcc: SimpleNamespace) -> None:
    assert compiler.compile_unit("calls", "int x;", ["-DA=1"]) == UNIT
    assert bcc.told == [("int x;", ["-DA=1"], str(compiled.STUBS))]
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    declared = {
        "bpf_num_tables": (size, [pointer]),
        "bpf_table_name": (ctypes.c_char_p, [pointer, size]),
        "bpf_table_fd_id": (number, [pointer, size]),
        "bpf_table_key_size_id": (size, [pointer, size]),
        "bpf_table_leaf_size_id": (size, [pointer, size]),
    }
    assert {name: (getattr(bcc.lib, name).restype, getattr(bcc.lib, name).argtypes) for name in declared} == declared


@pytest.mark.parametrize(
    ("complains", "reason"),
    [
        ("in file:\nx.c:3: error: no such field\nx.c:4: error: nor this\n", "no such field"),
        ("warning: nothing\n", "the whole"),
        ("", "the whole"),
    ],
)
def test_the_compilers_first_complaint_is_the_reason(
    bcc: SimpleNamespace, capfd: pytest.CaptureFixture[str], complains: str, reason: str
) -> None:
    bcc.complains, bcc.raises = complains, ValueError("the whole")
    with pytest.raises(UnavailableError) as raised:
        compiler.compile_unit("calls", "", [])
    assert (raised.value.reason, raised.value.remedy) == (f"calls.c does not compile: {reason}", "")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after", "descriptor 2 is again what it was"


def test_bcc_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(UnavailableError, match="bcc cannot be imported: import of bcc halted") as raised:
        compiler.load_bcc()
    assert raised.value.remedy == "sudo apt install python3-bpfcc"


@pytest.mark.parametrize(("nice", "becomes"), [(0, 10), (10, 10), (15, 15)])
def test_the_compiling_process_answers_a_line_each(
    bcc: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nice: int, becomes: int
) -> None:
    asked: list[tuple[object, ...]] = []
    said = os.open(tmp_path / "said", os.O_RDWR | os.O_CREAT)
    duplicate, moved = os.dup, os.dup2
    monkeypatch.setattr(os, "setpriority", lambda *one: asked.append(one))
    monkeypatch.setattr(os, "nice", lambda more: nice + more)
    monkeypatch.setattr(os, "dup", lambda descriptor: said if descriptor == 1 else duplicate(descriptor))
    monkeypatch.setattr(os, "dup2", lambda old, new: asked.append((old, new)) if new == 1 else moved(old, new))
    requests = [{"name": name, "text": "int x;", "flags": ["-DA"]} for name in ("calls", "samples")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{json.dumps(one)}\n" for one in requests)))
    outcomes: list[Any] = [None, ValueError("odd")]
    compile_unit = compiler.compile_unit

    def one_after_the_other(**request: Any) -> dict[str, Any]:
        bcc.raises = outcomes.pop(0)
        return compile_unit(**request)

    monkeypatch.setattr(compiler, "compile_unit", one_after_the_other)
    compiler.main()
    assert asked == [(os.PRIO_PROCESS, 0, becomes), (2, 1)]
    answers = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines()]
    refused = {"name": "samples", "reason": "samples.c does not compile: odd", "remedy": ""}
    assert answers == [{"name": "calls", "unit": UNIT}, refused]


# -- those that ask for it ------------------------------------------------------------------------------------------


class Child:
    """A compiling process: it says what it is given to say in chunks, and ends."""

    def __init__(self, argv: list[str], **options: Any) -> None:
        assert argv[:3] == [sys.executable, "-I", "-c"]
        assert argv[4:] == [str(programs.HERE.parent)]
        assert (options["stdin"], options["stdout"]) == (subprocess.PIPE, subprocess.PIPE)
        assert options["preexec_fn"], "it ends with the helper"
        self.told = b""
        self.stdin = SimpleNamespace(write=self._write, close=lambda: None)
        self._read, self.end = os.pipe()
        self.stdout = os.fdopen(self._read, "rb", buffering=0)
        self.code = 0
        Stage.children.append(self)

    def _write(self, data: bytes) -> None:
        self.told += data

    @property
    def names(self) -> list[str]:
        return [json.loads(line)["name"] for line in self.told.splitlines()]

    def say(self, text: str) -> None:
        os.write(self.end, text.encode())

    def wait(self) -> int:
        return self.code

    def poll(self) -> int:
        return self.code

    def ends(self, code: int) -> None:
        self.code = code
        os.close(self.end)


class Stage:
    children: list[Child]


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    Stage.children = []
    kept: list[str] = []
    monkeypatch.setattr(subprocess, "Popen", Child)
    monkeypatch.setattr("llmtop.collectors.tracing.helper.child.in_memory", io.BytesIO)
    monkeypatch.setattr(resource, "setrlimit", lambda *one: None)
    monkeypatch.setattr(os, "sched_getaffinity", {0: set(range(4))}.__getitem__)
    monkeypatch.setattr(compiled, "known", lambda request: UNIT if request.name == "lifecycle" else None)
    monkeypatch.setattr(compiled, "keep", lambda request, unit: kept.append(request.name))
    monkeypatch.setattr(programs, "Module", lambda unit, shared: (unit["maps"], id(shared)))
    yield Stage.children
    for child in Stage.children:
        child.stdout.close()


def test_what_is_not_known_is_compiled_in_lanes_the_first_ones_first(children: list[Child]) -> None:
    """Half of the CPUs compile at once; each goes through its own in their order."""
    asked = Programs()
    sources = [ProgramText(name) for name in ("lifecycle", "calls", "samples", "scheduler")]
    asked.ask(*sources)
    assert [child.names for child in children] == [["calls", "scheduler"], ["samples"]]
    assert [asked.module(source) is None for source in sources] == [False, True, True, True]
    line = json.dumps({"name": "calls", "unit": UNIT}) + "\n"
    children[0].say(line[:20])
    assert asked.module(sources[1]) is None
    children[0].say(line[20:])
    assert asked.wait(sources[1]) == asked.module(sources[1]) == asked.module(sources[0])
    assert asked.descriptors == [child.stdout.fileno() for child in children]
    children[1].say(json.dumps({"name": "samples", "reason": "refused", "remedy": "apt"}) + "\n")
    with pytest.raises(UnavailableError, match="refused") as raised:
        asked.wait(sources[2])
    assert raised.value.remedy == "apt"
    children[0].ends(-9)
    with pytest.raises(UnavailableError, match="the compiler ended: by SIGKILL"):
        asked.wait(sources[3])
    children[1].ends(0)
    asked.module(sources[0])
    assert asked.descriptors == []


@pytest.mark.parametrize(
    ("cpus", "lanes"), [(1, [3]), (3, [3]), (4, [2, 1]), (64, [1, 1, 1])], ids=["one", "three", "four", "many"]
)
def test_as_many_compile_at_once_as_there_are_cpus_for(
    children: list[Child], monkeypatch: pytest.MonkeyPatch, cpus: int, lanes: list[int]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", {0: set(range(cpus))}.__getitem__)
    Programs().ask(*(ProgramText(name) for name in ("calls", "samples", "scheduler")))
    assert [len(child.names) for child in children] == lanes


def test_a_compiler_that_ends_says_how(children: list[Child]) -> None:
    asked, source = Programs(), ProgramText("calls")
    for code, how in ((-signal.SIGSEGV, "by SIGSEGV"), (0, "exit code 0"), (1, "exit code 1")):
        asked.ask(source)
        children[-1].ends(code)
        asked._outcomes.clear()
        with pytest.raises(UnavailableError, match=f"the compiler ended: {how}"):
            asked.wait(source)


def test_a_request_names_all_that_a_program_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "pid_namespace", lambda: (4, 99))
    request = ProgramText("calls", ("-DX=1",), "int end;").request()
    assert request.flags == ("-DNAMESPACE_DEVICE=4", "-DNAMESPACE_INODE=99", "-Wno-macro-redefined", "-DX=1")
    folder = programs.HERE / "programs"
    assert request.text == (folder / "common.h").read_text() + (folder / "calls.c").read_text() + "int end;"
    monkeypatch.setattr(programs, "pid_namespace", lambda: None)
    assert ProgramText("calls").request().flags[:2] == ("-DNAMESPACE_DEVICE=0", "-DNAMESPACE_INODE=0")
    assert isinstance(request, CompileRequest)


@pytest.mark.parametrize(
    ("lockdown", "reason", "remedy"),
    [
        (
            "none integrity [confidentiality]",
            "the kernel is locked down (confidentiality)",
            "boot with lockdown=integrity",
        ),
        ("none [integrity] confidentiality", "refused", ""),
        ("", "refused", ""),
    ],
)
def test_a_kernel_that_is_locked_down_is_told_from_a_program_at_fault(
    monkeypatch: pytest.MonkeyPatch, lockdown: str, reason: str, remedy: str
) -> None:
    files = {"/sys/kernel/security/lockdown": lockdown}
    monkeypatch.setattr(programs, "read", files.__getitem__)
    why = programs.refusal("refused")
    assert (why.reason, why.remedy) == (reason, remedy)


def test_maps_that_the_kernel_refuses_are_a_reason(children: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(unit: object, shared: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(programs, "Module", refuse)
    monkeypatch.setattr(programs, "read", lambda path: "")
    asked = Programs()
    asked.ask(ProgramText("lifecycle"))
    with pytest.raises(UnavailableError, match=r"the kernel refuses the maps of lifecycle: .*Operation not permitted"):
        asked.module(ProgramText("lifecycle"))


def test_every_place_that_names_a_map_is_found_among_other_instructions() -> None:
    """One with a number of 64 bits takes two places (BPF_LD | BPF_IMM | BPF_DW); only some of these hold a map."""
    plain, wide = bytes((0xB7, 0, 0, 0, 1, 0, 0, 0)), (0x18).to_bytes(1, "little")
    of_map = wide + b"\x11\0\0" + (5).to_bytes(4, "little") + bytes(8)
    of_number = wide + b"\x01\0\0" + (5).to_bytes(4, "little") + bytes((0x18, 0x11, 0, 0, 5, 0, 0, 0))
    code = bytearray(plain + of_map + of_map + plain + of_number + of_map)
    found = list(compiler._references(code, {5: "calls"}))
    assert found == [[8 + 4, "calls"], [24 + 4, "calls"], [64 + 4, "calls"]]
