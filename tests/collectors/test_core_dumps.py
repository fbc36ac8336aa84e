"""Core dumps of GPUs that a watched server leaves: a made-up /proc, and dumps that grow in real folders."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtop import whats
from llmtop.collectors import core_dumps
from llmtop.collectors.core_dump_places import DumpPlace, flags_warning, places_of
from llmtop.collectors.core_dumps import RELIST_NS, SETTLED_NS, YOUNG_NS, CoreDumpsCollector, read_beside
from llmtop.model import NS_PER_S, CoreDump, Mark, MarkKind, Severity, Target, TargetProcess, Trace, Unknown
from tests.collectors.processes import eventually
from tests.parsers.sample_reports import SAMPLE_TRACES

SERVER = Target(
    100, 100, "vllm", "vLLM", (TargetProcess(100, "APIServer", "vllm"), TargetProcess(101, "EngineCore", ""))
)
ENABLED = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1"
WHOLE = gzip.decompress((SAMPLE_TRACES / "cuda-core" / "13.0" / "misaligned-store.nvcudmp.gz").read_bytes())
CUT = "was cut short: the program ended or the disk was full while it was written"


class Machine:
    """A folder that looks like /proc, the dumps' folder, and a clock that is moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.dumps, self.device = folder / "proc", folder / "dumps", folder / "nvidiactl"
        self.now = 0
        self.dumps.mkdir()
        self.device.touch()
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "self/ns/mnt").symlink_to("mnt:[1]")
        self.process(100)

    def process(self, pid: int, *environment: str, inside: int | None = None, mounts: str = "mnt:[1]") -> None:
        folder = self.proc / str(pid)
        (folder / "ns").mkdir(parents=True)
        (folder / "task" / str(pid)).mkdir(parents=True)
        (folder / "task" / str(pid) / "children").write_text("")
        (folder / "stat").write_text(f"{pid} (python3) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 0 0")
        (folder / "comm").write_text("VLLM::Worker\n")
        (folder / "status").write_text(f"NSpid:\t{pid}\t{inside}\n" if inside else f"NSpid:\t{pid}\n")
        (folder / "environ").write_text("\0".join((*environment, "HOME=/root", "")))
        (folder / "ns/mnt").symlink_to(mounts)
        (folder / "root").symlink_to("/")
        (folder / "cwd").symlink_to(self.dumps)
        if pid != 100:
            children = self.proc / "100/task/100/children"
            children.write_text(f"{children.read_text()}{pid} ")

    def ends(self, pid: int) -> None:
        (self.proc / str(pid) / "stat").unlink()

    def writes(self, name: str, content: bytes) -> Path:
        path = self.dumps / name
        path.write_bytes(content)
        return path

    def collector(self, read: core_dumps.ReadDump | None = None) -> CoreDumpsCollector:
        return CoreDumpsCollector(SERVER, self.proc, lambda: self.now, read, self.device)

    def marks(self, collector: CoreDumpsCollector, seconds: float = 0.25) -> tuple[Mark, ...]:
        self.now += int(seconds * NS_PER_S)
        return collector.poll().marks


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def until_told(machine: Machine, collector: CoreDumpsCollector, seconds: float = 0.25) -> Mark:
    """The mark of a dump that is read in a thread of its own."""
    return eventually(lambda: next((one for one in machine.marks(collector, seconds) if one.about), None), "the dump")


def why_none(trace: Trace) -> Unknown | None:
    return trace.why_missing(whats.CORE_DUMPS)


def where(machine: Machine, pid: int) -> list[tuple[str, str, str]]:
    places = places_of(pid, 100, machine.proc)
    assert not isinstance(places, Unknown)
    return [(one.folder, one.shown, one.name) for one in places]


# Where they will be


def test_without_a_template_they_go_to_the_current_folder_by_the_drivers_names(machine: Machine) -> None:
    machine.process(101, ENABLED)
    folder = str(machine.dumps)
    assert where(machine, 101) == [
        (folder, folder, "core_%t_%h_%p.nvcudmp"),
        (folder, folder, "core.cuda.%h.%p"),
    ]


@pytest.mark.parametrize(
    ("template", "folder", "name"),
    [
        ("/var/dumps/%h.%p.nvcudmp", "/var/dumps", "%h.%p.nvcudmp"),
        ("/%p", "/", "%p"),
        ("one.nvcudmp", "{}", "one.nvcudmp"),
        ("deep/%p", "{}/deep", "%p"),
    ],
)
def test_a_template_is_absolute_or_of_the_current_folder(
    machine: Machine, template: str, folder: str, name: str
) -> None:
    machine.process(101, ENABLED, f"CUDA_COREDUMP_FILE={template}")
    folder = folder.format(machine.dumps)
    assert where(machine, 101) == [(folder, folder, name)]


def test_of_a_container_they_are_seen_through_the_process_and_shown_by_its_root(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=/dumps/%p", inside=7, mounts="mnt:[2]")
    proc = machine.proc
    assert where(machine, 101) == [(f"{proc}/101/root/dumps", f"{proc}/100/root/dumps", "%p")]


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ((), "the server was started without core dumps of GPUs"),
        (("CUDA_ENABLE_COREDUMP_ON_EXCEPTION=0",), "the server was started without core dumps of GPUs"),
        ((ENABLED, "CUDA_COREDUMP_FILE=| gzip > /x"), "they are piped to a command, which CUDA_COREDUMP_FILE names"),
    ],
)
def test_where_none_can_be_seen_it_is_said_why(machine: Machine, environment: tuple[str, ...], why: str) -> None:
    machine.process(101, *environment)
    found = places_of(101, 100, machine.proc)
    assert isinstance(found, Unknown)
    assert found.reason == why


@pytest.mark.parametrize(
    ("template", "name", "pid"),
    [
        ("core_%t_%h_%p.nvcudmp", "core_1795492303_node-7.example_4300.nvcudmp", "4300"),
        ("core_%t_%h_%p.nvcudmp", "core_%t_node_4300.nvcudmp", "4300"),
        ("%p.%p", "12.12", "12"),
        ("a+%%%p", "a+%3", "3"),
        ("core_%t_%h_%p.nvcudmp", "core_1795492303_node_4300.nvcudmp.gz", None),
        ("%h.%p", "node.x", None),
    ],
)
def test_names_tell_whose_a_dump_is(template: str, name: str, pid: str | None) -> None:
    found = DumpPlace("/", "/", template).pattern().fullmatch(name)
    assert (None if found is None else found["pid"]) == pid


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("skip_abort", "take skip_abort out"),
        ("skip_global_memory", "add skip_constbank_memory"),
        ("skip_global_memory, skip_constbank_memory", ""),
        ("skip_shared_memory", ""),
    ],
)
def test_flags_that_cut_dumps_are_told(flags: str, said: str) -> None:
    assert flags_warning(flags).startswith(said)
    assert bool(flags_warning(flags)) == bool(said)


# What comes


def test_a_dump_that_grows_is_read_once_it_has_stopped_growing(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=%h.%p.nvcudmp")
    with machine.collector() as collector:
        why = why_none(collector.poll())
        assert why == Unknown(f"none has been written; one would go to {machine.dumps}/%h.%p.nvcudmp")
        path = machine.writes("node.101.nvcudmp", WHOLE[:1000])
        (begun,) = machine.marks(collector)
        assert (begun.text, begun.about) == (f"EngineCore (pid 101) writes a core dump of its GPU: {path}", None)
        machine.writes("node.101.nvcudmp", WHOLE[:500_000])
        assert machine.marks(collector) == ()
        machine.writes("node.101.nvcudmp", WHOLE)
        machine.ends(101)
        mark = until_told(machine, collector)
        assert (mark.kind, mark.severity, mark.track) == (MarkKind.CORE_DUMP, Severity.ERROR, "process:101")
        assert mark.text == (
            "EngineCore (pid 101) left a core dump of its GPU (593 KiB): "
            "Warp Misaligned Address in kv_trap at /srv/llm/crash.cu:3"
        )
        dump = mark.about
        assert isinstance(dump, CoreDump)
        assert (dump.file, dump.size, dump.gpu) == (str(path), len(WHOLE), "NVIDIA H100 80GB HBM3")
        assert [fault.kernel for fault in dump.faults] == ["kv_trap"]
        assert machine.marks(collector) == ()
        assert why_none(collector.poll()) is None


def test_a_dump_that_its_process_did_not_end_is_said_to_be_cut(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=%p.nvcudmp")
    with machine.collector() as collector:
        collector.poll()
        machine.writes("101.nvcudmp", WHOLE[:300_000])
        machine.ends(101)
        mark = until_told(machine, collector)
        assert mark.text == f"EngineCore (pid 101) left a core dump of its GPU (293 KiB), which {CUT}"
        assert isinstance(mark.about, CoreDump)
        assert mark.about.why_not is not None
        assert "skip_constbank_memory" in mark.about.why_not.remedy


def test_while_its_process_lives_a_dump_has_time_to_grow_on(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=%p.nvcudmp")
    cut, done = CoreDump("", 0, why_not=Unknown("was cut")), threading.Event()

    def read(file: int) -> CoreDump:
        done.set()
        return cut

    with machine.collector(read) as collector:
        collector.poll()
        machine.writes("101.nvcudmp", b"some")
        machine.marks(collector)
        changed_ns = machine.now
        machine.marks(collector)
        assert done.wait(20)
        left_s = (changed_ns + SETTLED_NS - machine.now) / NS_PER_S
        assert machine.marks(collector, left_s - 0.001) == ()
        mark = until_told(machine, collector, 0.001)
        assert mark.said == "left a core dump of its GPU (4 B), which was cut"


def test_a_command_that_failed_before_anybody_looked_is_found_by_what_it_was_started_with(machine: Machine) -> None:
    told = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1", "CUDA_COREDUMP_FILE": f"{machine.dumps}/%p.nvcudmp"}
    machine.writes("100.nvcudmp", WHOLE)
    with CoreDumpsCollector(SERVER, machine.proc, lambda: machine.now, told=told) as collector:
        assert collector.poll().marks == ()  # it lives, and its own environment asks for none
    machine.ends(100)
    with CoreDumpsCollector(SERVER, machine.proc, lambda: machine.now, told=told) as collector:
        os.utime(machine.dumps / "100.nvcudmp", (1e9, 1e9))
        assert collector.poll().marks == ()  # of another process that was called so, long ago
    machine.writes("100.nvcudmp", WHOLE)
    with CoreDumpsCollector(SERVER, machine.proc, lambda: machine.now, told=told) as collector:
        (begun,) = collector.poll().marks
        assert begun.subject == "APIServer (pid 100)"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_file_is_no_dump(machine: Machine, kind: str) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=%p.nvcudmp")
    with machine.collector() as collector:
        collector.poll()
        path = machine.dumps / "101.nvcudmp"
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/etc/passwd")
        assert machine.marks(collector) == ()


def test_a_dump_of_another_process_is_not_the_servers(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=%p.nvcudmp")
    with machine.collector() as collector:
        collector.poll()
        machine.writes("102.nvcudmp", WHOLE)
        assert machine.marks(collector) == ()
        machine.process(102, ENABLED, "CUDA_COREDUMP_FILE=%p.nvcudmp")
        machine.writes("103.nvcudmp", WHOLE)
        assert machine.marks(collector) == ()


def test_a_container_calls_its_processes_otherwise(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=%p.nvcudmp", inside=7)
    with machine.collector() as collector:
        collector.poll()
        machine.writes("7.nvcudmp", WHOLE)
        (begun,) = machine.marks(collector)
        assert begun.subject == "EngineCore (pid 101)"


def test_what_is_older_than_its_process_is_passed_over(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=%p.nvcudmp")
    path = machine.writes("101.nvcudmp", WHOLE)
    os.utime(path, (1e6, 1e6))
    with machine.collector() as collector:
        assert collector.poll().marks == ()
        machine.writes("101.nvcudmp", WHOLE)
        assert machine.marks(collector) == ()  # the folder has not changed
        machine.writes("other", b"")
        assert [mark.subject for mark in machine.marks(collector)] == ["EngineCore (pid 101)"]


def test_one_name_for_all_is_looked_at_each_time(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=last.nvcudmp")
    path = machine.writes("last.nvcudmp", b"of before")
    os.utime(path, (1e6, 1e6))
    with machine.collector() as collector:
        assert collector.poll().marks == ()
        machine.writes("last.nvcudmp", WHOLE)
        assert [mark.subject for mark in machine.marks(collector)] == ["APIServer (pid 100)"]
        assert isinstance(until_told(machine, collector).about, CoreDump)


def test_processes_are_looked_for_often_at_first_and_rarely_later(machine: Machine) -> None:
    with machine.collector() as collector:
        collector.poll()
        machine.now = YOUNG_NS
        collector.poll()
        machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=%p.nvcudmp")
        machine.now += RELIST_NS - 1
        assert "started without" in str(why_none(collector.poll()))
        machine.now += RELIST_NS
        assert "none has been written" in str(why_none(collector.poll()))


def test_a_folder_that_is_not_there_is_told_and_looked_for(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_FILE=deep/%p")
    with machine.collector() as collector:
        why = why_none(collector.poll())
        assert why is not None
        assert why.reason == f"their folder {machine.dumps}/deep cannot be read: No such file or directory"
        (machine.dumps / "deep").mkdir()
        assert "none has been written" in str(why_none(collector.poll()))


def test_without_a_driver_nothing_is_said_of_dumps_that_nobody_asked_for(machine: Machine) -> None:
    with machine.collector() as collector:
        assert "started without" in str(why_none(collector.poll()))
        machine.device.unlink()
        assert why_none(collector.poll()) is None


def test_flags_that_cut_dumps_stand_with_where_they_go(machine: Machine) -> None:
    machine.process(101, ENABLED, "CUDA_COREDUMP_GENERATION_FLAGS=skip_abort", "CUDA_COREDUMP_FILE=%p")
    with machine.collector() as collector:
        why = why_none(collector.poll())
        assert why is not None
        assert why.remedy.startswith("take skip_abort out of CUDA_COREDUMP_GENERATION_FLAGS")


# What reads them


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "damaged"
    path.write_bytes(b"no dump at all")
    file = os.open(path, os.O_RDONLY)
    yield file
    os.close(file)


def test_what_is_no_dump_is_said_to_be_none(damaged: int) -> None:
    dump = read_beside(damaged)
    assert dump.why_not is not None
    assert "/proc/self" not in str(dump.why_not)


def test_a_reader_that_ends_badly_costs_only_its_answer(damaged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_dumps, "_READER", "llmtop.no_such_module")
    assert str(read_beside(damaged).why_not).startswith("could not be read beside the server")
