"""Compiled programs: those in the tree are of the sources in the tree, and what is kept is taken by its owner alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from llmtop.collectors.tracing.bcc.collector import EbpfCollector
from llmtop.collectors.tracing.bcc.helper import calls, compiled, lifecycle, samples, scheduler, uprobes
from llmtop.collectors.tracing.bcc.helper.compiled import CompileRequest, known, write
from llmtop.collectors.tracing.bcc.helper.programs import ProgramText
from tests.collectors.tracing.collecting import damaged_helper, replace_in, stand_in_bcc
from tests.collectors.tracing.probes import probing

SOURCES = (
    lifecycle.SOURCE,
    scheduler.SOURCE,
    scheduler.BY_FIELDS,
    scheduler.WITHOUT_CALLS,
    calls.SOURCE,
    samples.SOURCE,
    uprobes.WITH_COOKIES,
)
UNIT = {"maps": {"lost": [2, 4, 8, 1, 0]}, "functions": {}}
TEXT = """
int on_wakeup(struct tracepoint__sched__sched_wakeup *args)
{
	return args->pid + args->no_such_field;
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "llmtop" / "probes"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    return folder


@pytest.fixture
def request_() -> CompileRequest:
    return CompileRequest("odd", "int nothing;", ("-DNAMESPACE_INODE=0",))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: " ".join((source.name, *source.flags)))
def test_the_programs_in_the_tree_are_of_the_sources_in_the_tree(source: ProgramText) -> None:
    if Path("/proc/self/ns/pid").stat().st_ino != 0xEFFFFFFC:
        pytest.skip("in a PID namespace programs are compiled for it")
    path = compiled.SHIPPED / "x86_64" / f"{source.request().key}.json"
    if os.uname().machine != "x86_64":
        pytest.skip("the tree has them for x86-64 alone")
    assert path.exists(), "run scripts/compile-probes"
    unit = json.loads(path.read_text())
    assert {reference for one in unit["functions"].values() for _, reference in one["maps"]} <= unit["maps"].keys()


def test_what_was_kept_is_known(request_: CompileRequest) -> None:
    assert known(request_) is None
    assert compiled.keep(request_, UNIT)
    assert known(request_) == {**UNIT, "layouts": {}}
    assert known(CompileRequest("odd", "int something;", request_.flags)) is None
    assert known(CompileRequest("odd", request_.text, ())) is None


def test_what_was_made_for_other_tracepoints_is_not_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n"
    monkeypatch.setattr(compiled, "read", lambda path: told)
    before = CompileRequest("odd", TEXT, ())
    assert before.layouts == {"sched_wakeup.pid": [24, 4], "sched_wakeup.no_such_field": []}
    compiled.keep(before, UNIT)
    assert known(before)
    monkeypatch.setattr(compiled, "read", lambda path: told.replace("24", "20"))
    assert known(CompileRequest("odd", TEXT, ())) is None


def test_what_others_may_have_written_is_not_taken(cache: Path, request_: CompileRequest) -> None:
    compiled.keep(request_, UNIT)
    path = cache / f"{request_.key}.json"
    for one, mode in ((path, 0o666), (cache, 0o777)):
        kept = one.stat().st_mode
        one.chmod(mode)
        assert known(request_) is None
        one.chmod(kept)
    assert known(request_)
    path.rename(cache / "elsewhere")
    path.symlink_to(cache / "elsewhere")
    assert known(request_) is None


def test_nothing_is_kept_where_others_may_write(cache: Path, request_: CompileRequest) -> None:
    cache.chmod(0o777)
    assert not compiled.keep(request_, UNIT)
    cache.chmod(0o700)
    assert compiled.keep(request_, UNIT)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"maps": {}}'])
def test_a_damaged_file_is_compiled_anew(cache: Path, request_: CompileRequest, text: str) -> None:
    (cache / f"{request_.key}.json").write_text(text)
    assert known(request_) is None


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert not compiled.keep(CompileRequest("odd", "", ()), UNIT)


def test_the_cache_finds_an_end(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_KEPT", 3)
    requests = [CompileRequest("odd", str(i), ()) for i in range(6)]
    for i, request in enumerate(requests):
        write(cache, request, UNIT)
        os.utime(cache / f"{request.key}.json", (i, i))
    compiled.keep(CompileRequest("odd", "last", ()), UNIT)
    assert len(list(cache.iterdir())) == 3
    assert known(requests[-1])
    assert known(requests[0]) is None


@pytest.mark.usefixtures("kernel_probes")
def test_what_was_compiled_once_is_loaded_without_bcc_the_next_time(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = damaged_helper(tmp_path, monkeypatch)
    replace_in(copy / "programs" / "common.h", "#define MARKS 65536", "#define MARKS 32768")
    with probing(os.getpid(), options=["--stacks"], program=EbpfCollector.program) as probes:
        assert probes.said[-1]["missing"] == {}
    at_once = [one for one in cache.iterdir() if not one.name.startswith("library")]
    assert len(at_once) == 4, "that one comes once it is seen that an interpreter is mapped"
    stand_in_bcc(copy, "raise RuntimeError('not to be had any more')\n")
    with probing(os.getpid(), options=["--stacks"], program=EbpfCollector.program) as probes:
        assert [one["missing"] for one in probes.said] == [{}]


@pytest.mark.parametrize(
    ("release", "has_types", "place", "expected"),
    [
        ((6, 1), True, 2468, scheduler.SOURCE),
        ((6, 1), True, None, scheduler.BY_FIELDS),
        ((5, 15), True, 2468, scheduler.BY_FIELDS),
        ((5, 14), True, 2468, scheduler.WITHOUT_CALLS),
        ((6, 1), False, 2468, scheduler.WITHOUT_CALLS),
    ],
)
def test_which_program_a_kernel_can_load(
    release: tuple[int, int],
    has_types: bool,
    place: int | None,
    expected: ProgramText,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    types = tmp_path / "vmlinux"
    if has_types:
        types.touch()
    monkeypatch.setattr(f"{scheduler.__name__}.system.kernel_release", lambda: release)
    monkeypatch.setattr(scheduler, "Path", lambda _: types)
    monkeypatch.setattr(scheduler, "place_of_id", lambda: place)
    assert scheduler.source() is expected
