"""What is reported of library calls, of a server that is made up: calls count while their probes are held."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest

from llmtop.collectors.tracing.helper import libraries, system
from llmtop.collectors.tracing.helper.functions import COLLECTOR, KINDS, NUMBERS
from llmtop.collectors.tracing.helper.interpreters import NO_COLLECTOR
from llmtop.collectors.tracing.helper.libraries import LibraryFile, ProbePoint
from llmtop.collectors.tracing.helper.system import UnavailableError
from llmtop.collectors.tracing.probes.helper import (
    library_maps,
    library_probes,
    library_search,
    library_sums,
    programs,
    uprobes,
)
from llmtop.collectors.tracing.probes.helper.library import Library
from llmtop.collectors.tracing.probes.helper.library_probes import SAMPLED
from llmtop.collectors.tracing.probes.helper.programs import Programs
from tests.collectors.tracing.recorded_maps import RecordedModule, at, slots

PID, TID = 100, 101
S, MS = 1_000_000_000, 1_000_000
CUDA = "/usr/lib/libcuda.so.1"
LAUNCH, SYNC, COPY = "cuLaunchKernel", "cuStreamSynchronize", "cuMemcpyAsync"
NO_LIMIT = 1e9
COST_NS = 1000.0


class Server:
    """Calls a second by function, of one thread that works all the time, on a clock that moves when it is told to."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        self.rates = dict(rates)
        self.now_ns = 100 * S
        self.cpu_ns = 0
        self.refused: frozenset[str] = frozenset()
        self.held: dict[tuple[str, str], frozenset[str]] = {}
        self.module = RecordedModule()
        self.hits = 0.0
        self.priorities = {(0, 0): 5}
        """Of the helper, by kind and id."""
        self.open_at: set[int] = set()
        """At which priority probes on launches were there."""
        self.cpu_share = 1.0
        self._steps = 0
        self._step_launches = 0.0
        self._open_s = 0.0
        self._counts: dict[str, float] = {}

    @property
    def probed(self) -> frozenset[str]:
        return frozenset().union(*self.held.values())

    def hold(self, pid: int, path: str, group: str, functions: Mapping[str, ProbePoint]) -> None:
        assert path.startswith(f"/proc/{pid}/root/"), "a file as the process sees it"
        assert group.removeprefix("sampled ") in KINDS
        if self.refused & functions.keys():
            raise OSError("refused")
        self.held[path, group] = frozenset(functions)
        if LAUNCH in functions:
            self._open_s = 0.0

    def priority_of(self, kind: int, who: int) -> int:
        return self.priorities[kind, who]

    def set_priority(self, kind: int, who: int, priority: int) -> None:
        self.priorities[kind, who] = priority

    def sleep(self, seconds: float) -> None:
        """Let time go by: each call takes a microsecond, and is in the slot 2."""
        self.now_ns += round(seconds * S)
        self.cpu_ns += round(seconds * S * self.cpu_share)
        if LAUNCH in self.probed:
            self.open_at.add(self.priorities[0, 0])
        for name in self.probed:
            self._counts[name] = self._counts.get(name, 0.0) + self.rates.get(name, 0.0) * seconds
            self.hits += self.rates.get(name, 0.0) * seconds
            count = round(self._counts[name])
            if count:
                row = (count, count * 1000, *slots(s2=count))
                self.module["functions"].put((PID, NUMBERS[name]), row)
        if {LAUNCH, SYNC} <= self.probed:  # each step launches, and waits at its end; only whole ones count
            before, self._open_s = self._open_s, self._open_s + seconds
            whole = int(self._open_s * self.rates[SYNC]) - int(before * self.rates[SYNC])
            self._steps += whole
            self._step_launches += whole * self.rates[LAUNCH] / self.rates[SYNC]
        if self._counts and "library_threads" in self.module.tables:
            self.thread(launches=round(self._counts.get(LAUNCH, 0.0)))

    def thread(
        self, launches: int = 0, sync_ns: int = 0, sync_since: int = 0, tid: int = TID, collecting_ns: int = 0
    ) -> None:
        steps, syncs = self._steps, round(self._counts.get(SYNC, 0.0))
        row = (
            launches,
            sync_ns,
            sync_since,
            0,
            0,
            syncs,
            steps,
            round(self._step_launches),
            0,
            collecting_ns,
            3,
            0,
            0,
            0,
            PID,
            0,
            0,
            0,
            b"",
        )
        self.module["library_threads"].put((tid,), row)

    def module_of(self, source: object) -> RecordedModule:
        return self.module

    def monotonic(self) -> float:
        return self.now_ns / S

    def monotonic_ns(self) -> int:
        return self.now_ns


def on_clock_of(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (library_maps, library_probes, library_search, library_sums):
        monkeypatch.setattr(module, "time", server)


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, float]], Server]:
    def made(rates: Mapping[str, float]) -> Server:
        server = Server(rates)
        on_clock_of(server, monkeypatch)
        monkeypatch.setattr(uprobes, "make_uprobes", lambda source, module: server)
        monkeypatch.setattr(uprobes, "source", lambda: uprobes.WITH_COOKIES)
        costs = {"library": COST_NS, "stepped_library": 10 * COST_NS}
        monkeypatch.setattr("llmtop.collectors.tracing.probes.helper.probe_cost.measured", lambda probes: costs)
        monkeypatch.setattr(library_search, "mapped_libraries", lambda pid: {CUDA: tuple(rates)} if pid == PID else {})
        points = {name: at(place) for place, name in enumerate(rates)}
        file = LibraryFile((1, 2), points)
        monkeypatch.setattr(libraries.LibraryFiles, "at", lambda files, pid, path, wanted: file)
        own = SimpleNamespace(getpriority=server.priority_of, setpriority=server.set_priority, PRIO_PROCESS=0)
        monkeypatch.setattr(library_probes, "os", own)
        monkeypatch.setattr(system, "cpu_ns", lambda pid: server.cpu_ns)
        monkeypatch.setattr(system, "run_and_queued", lambda pid, tid: server.cpu_ns)
        return server

    return made


def library_of(server: Server, budget_ns: float) -> Library:
    brought = SimpleNamespace(module=server.module_of)
    return Library(cast("Programs", brought), budget_ns, lambda: round(server.hits))


def look(library: Library, server: Server, seconds: float, *pids: int) -> None:
    """Tick as the helper does: five times a second."""
    for _ in range(round(seconds * 5)):
        library.tick(pids or (PID,))
        server.sleep(0.2)


def test_without_a_limit_all_calls_are_counted_at_once(serving: Callable[[Mapping[str, float]], Server]) -> None:
    server = serving({LAUNCH: 1000.0, SYNC: 50.0})
    library = library_of(server, NO_LIMIT)
    look(library, server, 2.0)
    assert library.read(server.now_ns, ()) == [
        (PID, LAUNCH, 2000, 2 * MS, {2: 2000}),
        (PID, SYNC, 100, 100_000, {2: 100}),
    ]
    assert library.read(server.now_ns, ()) == [], "nothing has changed"
    assert library.read_threads(server.now_ns, ()) == [(PID, TID, 2000, 0)]
    assert library.probed == 2
    assert library.notes == {}
    assert library.coverage() == {
        "library_observed": [(PID, 2 * S)],
        "uncounted": [],
        "unseen": [],
        "sampled": [],
    }


def test_seldom_calls_are_counted_all_the_time_once_a_window_has_shown_that(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    server = serving({LAUNCH: 200.0, SYNC: 200.0})
    library = library_of(server, 3e6)
    assert library.is_settling([PID])
    look(library, server, 10.0)
    assert server.probed == {LAUNCH, SYNC}
    assert set(server.held) >= {(f"/proc/{PID}/root{CUDA}", "launch"), (f"/proc/{PID}/root{CUDA}", "wait")}
    counts = {row.name: row.times for row in library.read(server.now_ns, ())}
    assert counts == {LAUNCH: pytest.approx(2000, rel=0.1), SYNC: pytest.approx(2000, rel=0.1)}
    assert (library.notes, library.coverage()["sampled"]) == ({}, [])
    assert not library.is_settling([PID])


def test_many_launches_are_estimated_from_windows_and_waits_are_seen_whole(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    server = serving({LAUNCH: 100_000.0, SYNC: 100.0})
    library = library_of(server, 3e6)
    held_s = 0.0
    for _ in range(150):
        before = server.now_ns
        library.tick([PID])
        held_s += (server.now_ns - before) / S
        server.sleep(0.2)
    assert server.probed == {SYNC}
    assert held_s * 100_000 * COST_NS <= 30 * 3e6, "30 seconds of the budget"
    told = {row.name: row for row in library.read(server.now_ns, ())}
    seconds = (server.now_ns - 100 * S) / S
    assert told[LAUNCH].times == pytest.approx(100_000 * seconds, rel=0.2)
    assert told[SYNC].times == pytest.approx(100 * seconds, rel=0.2)
    assert library.notes[SAMPLED].startswith("kernel launches are counted in ")
    covered = library.coverage()
    assert covered["sampled"] == [(PID, [LAUNCH], ["launches"])]
    assert covered["unseen"] == []
    ((_, observed_ns),) = covered["library_observed"]
    assert 0.9 * seconds * S < observed_ns <= seconds * S


@pytest.mark.parametrize("steps_per_s", [100.0, 15.0], ids=["short steps", "steps longer than a window"])
def test_launches_follow_the_steps_and_not_what_else_takes_cpu_time(
    serving: Callable[[Mapping[str, float]], Server], steps_per_s: float
) -> None:
    server = serving({LAUNCH: 100_000.0, SYNC: steps_per_s})
    library = library_of(server, 3e6)
    look(library, server, 20.0)  # fewer windows than are remembered: the whole step of the second is
    library.read(server.now_ns, ())
    assert library.notes[SAMPLED].partition("estimated")[2].startswith(", kernel launches by the steps of the server")
    (before,) = library.read_threads(server.now_ns, ())
    began = server.now_ns
    server.cpu_share = 4.0
    look(library, server, 10.0)
    library.read(server.now_ns, ())
    (after,) = library.read_threads(server.now_ns, ())
    launched = 100_000 * (server.now_ns - began) / S
    assert after.launches - before.launches == pytest.approx(launched, rel=0.25)


def test_graphs_are_counted_all_the_time_where_kernels_are_too_many(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    server = serving({LAUNCH: 100_000.0, "cuGraphLaunch": 300.0, SYNC: 100.0})
    library = library_of(server, 3e6)
    look(library, server, 30.0)
    assert server.probed == {SYNC, "cuGraphLaunch"}
    assert library.coverage()["sampled"] == [(PID, [LAUNCH], ["launches"])]
    told = {row.name: row.times for row in library.read(server.now_ns, ())}
    assert told["cuGraphLaunch"] == pytest.approx(300 * (server.now_ns - 100 * S) / S, rel=0.05)


def test_a_kernels_launch_whose_probes_come_off_hides_no_graph(
    serving: Callable[[Mapping[str, float]], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is not seen: launches are of a new round once no more of them can begin."""
    server = serving({LAUNCH: 100_000.0, "cuGraphLaunch": 300.0, SYNC: 100.0})
    library = library_of(server, 3e6)
    look(library, server, 2.0)
    released_in: list[int] = []
    hold = server.hold

    def held(pid: int, path: str, group: str, functions: dict[str, ProbePoint]) -> None:
        had_launches = LAUNCH in server.probed
        hold(pid, path, group, functions)
        if had_launches and LAUNCH not in server.probed:
            released_in.append(server.module["attachments"].count())

    monkeypatch.setattr(server, "hold", held)
    look(library, server, 2.0)
    assert released_in
    assert server.module["attachments"].count() > released_in[-1]


def test_a_burst_that_a_second_can_bear_costs_no_probes(serving: Callable[[Mapping[str, float]], Server]) -> None:
    """Requests that begin at once, each with its prompt in pieces of graphs."""
    server = serving({"cuGraphLaunch": 300.0, SYNC: 200.0})
    library = library_of(server, 3e6)
    look(library, server, 10.0)
    for _ in range(2):
        library.read(server.now_ns, ())
        server.rates["cuGraphLaunch"] = 8_000.0
        look(library, server, 0.2)
        server.rates["cuGraphLaunch"] = 300.0
        look(library, server, 2.0)
        assert "cuGraphLaunch" in server.probed
    server.rates["cuGraphLaunch"] = 8_000.0
    look(library, server, 2.0)
    assert "cuGraphLaunch" not in server.probed


def test_what_comes_to_cost_too_much_loses_its_probes_at_the_next_tick(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    server = serving({LAUNCH: 200.0, SYNC: 200.0})
    library = library_of(server, 3e6)
    look(library, server, 10.0)
    library.read(server.now_ns, ())
    server.rates[LAUNCH] = 50_000.0
    look(library, server, 0.4)
    assert server.probed == {SYNC}
    library.read(server.now_ns, ())
    (before,) = library.read_threads(server.now_ns, ())
    look(library, server, 0.8)
    assert server.probed == {SYNC}
    library.read(server.now_ns, ())
    (after,) = library.read_threads(server.now_ns, ())
    assert after.launches - before.launches == pytest.approx(0.8 * 50_000, rel=0.1), "as it was last seen to launch"


def test_a_function_that_cannot_be_probed_costs_only_itself(serving: Callable[[Mapping[str, float]], Server]) -> None:
    server = serving({LAUNCH: 100.0, COPY: 10.0, "cuGraphLaunch": 10.0, SYNC: 50.0})
    server.refused = frozenset({"cuGraphLaunch"})
    library = library_of(server, NO_LIMIT)
    look(library, server, 1.0)
    assert server.probed == {LAUNCH, COPY, SYNC}
    assert library.notes == {"cuGraphLaunch": "the kernel lets nobody probe it"}
    covered = library.coverage()
    assert (covered["uncounted"], covered["unseen"]) == ([(PID, ["cuGraphLaunch"])], [(PID, ["launches"])])
    assert sorted(row.name for row in library.read(server.now_ns, ())) == sorted({LAUNCH, COPY, SYNC})


def test_where_a_wait_cannot_be_probed_no_time_counts_as_seen(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    server = serving({LAUNCH: 100.0, SYNC: 50.0})
    server.refused = frozenset({SYNC})
    library = library_of(server, NO_LIMIT)
    look(library, server, 1.0)
    library.read(server.now_ns, ())
    assert library.coverage() == {
        "library_observed": [(PID, 0)],
        "uncounted": [(PID, [SYNC])],
        "unseen": [(PID, ["sync"])],
        "sampled": [],
    }


def test_a_wait_that_goes_on_counts_up_to_now_and_never_shrinks(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    server = serving({LAUNCH: 10.0, SYNC: 1.0})
    library = library_of(server, NO_LIMIT)
    look(library, server, 1.0)
    server.thread(launches=10, sync_ns=5 * MS, sync_since=server.now_ns - 300)
    server.thread(tid=TID + 1)
    library.read(server.now_ns, ())
    assert library.read_threads(server.now_ns, ()) == [(PID, TID, 10, 5 * MS + 300)], "nothing is told of nothing"
    server.thread(launches=10, sync_ns=5 * MS + 290)
    assert library.read_threads(server.now_ns + S, ()) == []
    server.thread(launches=11, sync_ns=6 * MS)
    library.read(server.now_ns, ())
    assert library.read_threads(server.now_ns, [(TID, PID)]) == [(PID, TID, 11, 6 * MS)]
    assert (TID,) not in server.module["library_threads"].rows


def test_time_in_the_collector_is_told_of_a_thread_when_there_is_more_of_it(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    server = serving({COLLECTOR: 10.0})
    library = library_of(server, NO_LIMIT)
    look(library, server, 1.0)
    server.thread(collecting_ns=5 * MS)
    server.thread(tid=TID + 1)
    library.read(server.now_ns, ())
    assert library.read_collecting() == [(PID, TID, 5 * MS, 3)], "nothing is told of nothing"
    assert (library.read_collecting(), library.read_threads(server.now_ns, ())) == ([], [])
    assert library.coverage()["library_observed"] == [], "an interpreter makes no calls that wait for the GPU"


def test_an_interpreter_whose_collector_is_not_found_is_said_to_be_so(
    serving: Callable[[Mapping[str, float]], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in the library that the program maps, it does not matter that the program has none."""
    server = serving({COLLECTOR: 10.0})
    found = LibraryFile((1, 2), {COLLECTOR: at(0)})
    files = iter([LibraryFile((1, 1), {}), found, LibraryFile((1, 1), {})])
    monkeypatch.setattr(libraries.LibraryFiles, "at", lambda one, pid, path, wanted: next(files))
    mapped = {PID: ("/bin/python3.12", "/lib/libpython3.12.so"), PID + 1: ("/bin/stripped/python3.12",)}
    paths = {pid: dict.fromkeys(several, (COLLECTOR,)) for pid, several in mapped.items()}
    monkeypatch.setattr(library_search, "mapped_libraries", paths.__getitem__)
    library = library_of(server, NO_LIMIT)
    for pid, notes, uncounted in ((PID, {}, []), (PID + 1, {COLLECTOR: NO_COLLECTOR}, [(PID + 1, [COLLECTOR])])):
        library.tick([pid])
        library.tick([pid])
        assert (library.notes, library.coverage()["uncounted"]) == (notes, uncounted)
    assert library.coverage()["unseen"] == [(PID + 1, ["collections"])]


def test_a_wait_that_began_after_the_look_counts_from_the_next_one(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    """The kernel's clock goes on while its maps are read."""
    server = serving({LAUNCH: 10.0, SYNC: 1.0})
    library = library_of(server, NO_LIMIT)
    look(library, server, 1.0)
    server.thread(launches=10, sync_ns=5 * MS, sync_since=server.now_ns + 300)
    library.read(server.now_ns, ())
    assert library.read_threads(server.now_ns, ()) == [(PID, TID, 10, 5 * MS)]
    assert library.read_threads(server.now_ns + 301, ()) == [(PID, TID, 10, 5 * MS + 1)]


def test_a_process_that_has_ended_leaves_no_probes(serving: Callable[[Mapping[str, float]], Server]) -> None:
    server = serving({LAUNCH: 10.0, SYNC: 1.0})
    library = library_of(server, NO_LIMIT)
    look(library, server, 1.0)
    server.module["lost"].put((0,), (4,))
    assert library.lost() == 4
    library.read(server.now_ns, [PID])
    assert server.probed == frozenset()
    assert (library.probed, library.coverage()["library_observed"]) == (0, [])


def test_runtime_calls_that_are_the_drivers_alone_are_told_as_that(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    server = serving({LAUNCH: 50_000.0, "cudaLaunchKernel": 50_000.0, SYNC: 10.0})
    library = library_of(server, 3e6)
    look(library, server, 10.0)
    assert library.coverage()["uncounted"] == [(PID, ["cudaLaunchKernel"])]
    assert library.notes["runtime"] == "its calls are counted in the driver: probes on both would cost too much"
    assert library.probed == 2


def test_waits_of_the_runtime_that_are_the_drivers_alone_lose_their_probes_while_those_stay(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    """They are counted all the time: what else costs too much is the launches'."""
    runtime = "cudaStreamSynchronize"
    server = serving({LAUNCH: 50_000.0, runtime: 500.0, SYNC: 500.0})
    library = library_of(server, 3e6)
    look(library, server, 0.5)
    assert server.probed == {runtime, SYNC}, "two dozen calls are needed to tell"
    look(library, server, 10.0)
    assert server.probed == {SYNC}
    assert library.coverage()["uncounted"] == [(PID, [runtime])]
    assert library.coverage()["unseen"] == []


def test_processes_take_turns_so_that_idle_ones_do_not_keep_a_busy_one_from_being_seen(
    serving: Callable[[Mapping[str, float]], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A front end and an engine that launch nothing, before the worker that does: vLLM with tensor parallelism."""
    server = serving({LAUNCH: 50_000.0, SYNC: 300.0})
    monkeypatch.setattr(library_search, "mapped_libraries", lambda pid: {CUDA: (LAUNCH, SYNC)})
    library = library_of(server, 1e6)
    look(library, server, 20.0, PID + 1, PID + 2, PID)
    assert (PID, ["sync"]) not in library.coverage()["unseen"]
    assert dict(library.coverage()["library_observed"])[PID] > 0


def test_waits_that_would_cost_too_much_to_see_say_what(serving: Callable[[Mapping[str, float]], Server]) -> None:
    server = serving({SYNC: 10_000.0})
    library = library_of(server, 3e6)
    look(library, server, 0.4)
    assert library.why_no_rounds() == "", "it is still looking"
    look(library, server, 10.0)
    told = re.fullmatch(
        r"single waits for the GPU are not seen: probes on them would cost (\S+) % of a core", library.why_no_rounds()
    )
    assert told is not None
    assert float(told[1]) > 0.3
    seldom = serving({SYNC: 100.0})
    library = library_of(seldom, 3e6)
    look(library, seldom, 10.0)
    assert library.why_no_rounds() == ""


def test_single_probes_have_a_program_for_each_function_and_way() -> None:
    module = RecordedModule()
    uprobes.make_uprobes(uprobes.WITHOUT_COOKIES, module.module)
    assert set(module.loaded) == {
        (way, programs.KPROBE, uprobes.cookie_of(name)) for way in ("enter_any", "leave_any") for name in NUMBERS
    }


def test_a_program_that_cannot_be_had_costs_these_counts_alone(
    serving: Callable[[Mapping[str, float]], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving({LAUNCH: 10.0})
    asked = []

    def refuse(source: object) -> None:
        asked.append(source)
        raise UnavailableError("no uprobes here")

    brought = SimpleNamespace(module=refuse)
    library = Library(cast("Programs", brought), NO_LIMIT, lambda: 0)
    look(library, server, 1.0)
    assert asked == [uprobes.WITH_COOKIES, uprobes.WITHOUT_COOKIES]
    assert library.why_not is not None
    assert library.why_not.reason == "no uprobes here"
    assert (library.read(server.now_ns, ()), library.read_threads(server.now_ns, ())) == ([], [])
    assert (library.lost(), library.is_settling([PID])) == (0, False)


def test_libraries_are_known_by_their_files_names(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = (
        "1000-2000 r-xp 0 00:01 7                 /usr/lib/x86_64/libcuda.so.550.54\n"
        "2000-3000 r--p 0 00:01 7                 /usr/lib/x86_64/libcuda.so.550.54\n"
        "3000-4000 r-xp 0 00:01 8                 /opt/my env/libcudart.so.12 (deleted)\n"
        "4000-5000 r-xp 0 00:01 9                 /usr/lib/mylibcuda.so\n"
        "5000-6000 rw-p 0 00:00 0 \n"
        "6000-7000 r-xp 0 00:00 0                 [vdso]\n"
    )
    monkeypatch.setattr(libraries, "read", lambda path: maps if path == f"/proc/{PID}/maps" else "")
    found = libraries.mapped_libraries(PID)
    assert list(found) == ["/usr/lib/x86_64/libcuda.so.550.54", "/opt/my env/libcudart.so.12 (deleted)"]
    assert LAUNCH in found["/usr/lib/x86_64/libcuda.so.550.54"]


def test_processes_are_looked_through_one_after_the_other(
    serving: Callable[[Mapping[str, float]], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tick looks for the libraries of one of them; both map the same file, which is read once."""
    server = serving({LAUNCH: 1000.0, SYNC: 50.0})
    looked: list[tuple[float, int]] = []
    mapped: dict[int, dict[str, tuple[str, ...]]] = {PID: {CUDA: (LAUNCH, SYNC)}, PID + 50: {CUDA: (LAUNCH, SYNC)}}

    def libraries_of(pid: int) -> Mapping[str, tuple[str, ...]]:
        looked.append((round(server.now_ns / S - 100, 1), pid))
        return mapped.get(pid, {})

    monkeypatch.setattr(library_search, "mapped_libraries", libraries_of)
    library = library_of(server, NO_LIMIT)
    look(library, server, 120.0, PID, PID + 50)
    assert library.probed == 4
    first = [at for at, pid in looked if pid == PID]
    second = [at for at, pid in looked if pid == PID + 50]
    assert first == [0.0, 5.0, 15.0, 35.0, 75.0], "after 5 s, and twice as long each time up to a minute"
    assert [round(b - a, 1) for a, b in zip(first, second, strict=True)] == [0.2] * 5
    mapped[PID]["/opt/libcuda.so.1"] = (LAUNCH, SYNC)
    looked.clear()
    look(library, server, 100.0, PID, PID + 50)
    assert [at for at, pid in looked if pid == PID] == [135.0, 140.0, 150.0, 170.0, 210.0], "what maps may map more"
    own = {f"/proc/{PID}/root{CUDA}", f"/proc/{PID}/root/opt/libcuda.so.1"}
    assert {path for (path, _), names in server.held.items() if names} == {*own, f"/proc/{PID + 50}/root{CUDA}"}
    assert library.probed == 4, "two copies of a library are one to those who count"
    library.read(server.now_ns, [PID])
    assert {path for (path, _), names in server.held.items() if names} == {f"/proc/{PID + 50}/root{CUDA}"}


class Crowd(Server):
    """Several processes of one kind, each of one thread: the rows of the first, and as many of the others."""

    def __init__(self, rates: Mapping[str, float], pids: tuple[int, ...]) -> None:
        super().__init__(rates)
        self.pids = pids

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        for name in ("functions", "library_threads"):
            if name in self.module.tables:
                rows = self.module[name].rows
                for key, row in list(rows.items()):
                    for more, pid in enumerate(self.pids[1:], 1):
                        if name == "functions" and key[0] == PID:
                            rows[pid, key[1]] = tuple((1 + more) * count for count in row)
                        elif key == (TID,):
                            rows[TID + more,] = (*((1 + more) * count for count in row[:14]), pid, *row[15:])


def test_what_one_process_does_is_not_put_down_to_another(
    serving: Callable[[Mapping[str, float]], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = Crowd({LAUNCH: 1000.0, SYNC: 50.0, COPY: 10.0}, (PID, 200, 300))
    serving(crowd.rates)
    on_clock_of(crowd, monkeypatch)
    monkeypatch.setattr(uprobes, "make_uprobes", lambda source, module: crowd)
    monkeypatch.setattr(system, "cpu_ns", lambda pid: crowd.cpu_ns)
    monkeypatch.setattr(system, "run_and_queued", lambda pid, tid: crowd.cpu_ns)
    monkeypatch.setattr(library_search, "mapped_libraries", lambda pid: {CUDA: tuple(crowd.rates)})
    library = library_of(crowd, NO_LIMIT)
    look(library, crowd, 2.0, *crowd.pids)
    counts = {(row.pid, row.name): row.times for row in library.read(crowd.now_ns, ())}
    threads = {(row.pid, row.tid): row.launches for row in library.read_threads(crowd.now_ns, ())}
    launches = counts[PID, LAUNCH]
    assert counts == {
        (pid, name): times * (1 + more)
        for more, pid in enumerate(crowd.pids)
        for name, times in ((LAUNCH, launches), (SYNC, launches // 20), (COPY, launches // 100))
    }
    assert threads == {(pid, TID + more): launches * (1 + more) for more, pid in enumerate(crowd.pids)}
    library.read(crowd.now_ns, [200])
    look(library, crowd, 1.0, PID, 300)
    later = {(row.pid, row.name) for row in library.read(crowd.now_ns, ())}
    assert later == {(pid, name) for pid in (PID, 300) for name in crowd.rates}


def test_calls_under_way_are_over_when_their_probes_come_off(serving: Callable[[Mapping[str, float]], Server]) -> None:
    """Of this process alone, and of the functions that have lost their probes: nobody will tell when they end."""
    server = serving({LAUNCH: 100.0, SYNC: 100.0})
    library = library_of(server, 3e6)
    look(library, server, 10.0)
    assert server.probed == {LAUNCH, SYNC}
    entered = server.module["entered"]
    for number, tid in ((NUMBERS[LAUNCH], TID), (NUMBERS[SYNC], TID), (NUMBERS[COPY], TID)):
        entered.put((tid << 8 | number,), (5,))
    threads = server.module["library_threads"]
    of_round = b"R" * 176
    waiting = (9, 5 * MS, server.now_ns - MS, 77, 88, 3, 2, 7, 4, 9, 1, 66, 5, 6, PID, 1, 2, 8, of_round)
    for tid, pid in ((TID + 1, PID), (TID + 2, 300)):
        threads.put((tid,), (*waiting[:14], pid, *waiting[15:]))
    server.rates[SYNC] = 1e6
    look(library, server, 0.4)
    assert SYNC not in server.probed
    left = {key & 0xFF for (key,) in entered.rows}
    assert NUMBERS[SYNC] not in left
    assert NUMBERS[COPY] in left
    own, other = threads.get(TID + 1), threads.get(TID + 2)
    assert own == (9, 5 * MS, 0, 0, 88, 3, 2, 7, 4, 9, 1, 66, 5, 6, PID, 1, 2, 8, of_round), "queries keep theirs"
    assert other is not None
    assert (*other[2:4], other[11]) == (waiting[2], 77, 66)


def test_what_a_part_of_the_time_stands_for_is_said(serving: Callable[[Mapping[str, float]], Server]) -> None:
    server = serving({LAUNCH: 100_000.0, SYNC: 100_000.0, COPY: 100_000.0})
    library = library_of(server, 3e6)
    look(library, server, 30.0)
    library.read(server.now_ns, ())
    note = library.notes[SAMPLED]
    by = "kernel launches by its CPU time, which can be off by half where a step is longer than a window"
    assert note.startswith("waits, copies and kernel launches are counted in 0.")
    assert note.endswith(f"% of the time and the rest estimated, {by}: counting all could cost too much")
    assert library.coverage()["unseen"] == [(PID, ["sync"])]
    assert library.coverage()["library_observed"] == [(PID, 0)]
    assert library.coverage()["sampled"] == [(PID, [LAUNCH, SYNC, COPY], ["launches", "sync"])]


def test_a_window_costs_a_millisecond_beside_what_it_counts(serving: Callable[[Mapping[str, float]], Server]) -> None:
    """The kernel writes into the server's code: a budget of 0.2 ms a second has that every 5 s, called or not."""
    server = serving({LAUNCH: 0.0})
    library = library_of(server, 2e5)
    opened: list[float] = []
    for _ in range(500):
        before = server.now_ns
        library.tick([PID])
        if server.now_ns > before:
            opened.append(before / S)
        server.sleep(0.2)
    assert {round(later - earlier, 1) for earlier, later in pairwise(opened)} <= {5.0, 5.1}
    assert library.is_settling([PID]) is False


def test_the_helper_hurries_while_a_window_is_open_and_no_longer(
    serving: Callable[[Mapping[str, float]], Server],
) -> None:
    """While it waits for a CPU, the probes cost the server."""
    server = serving({LAUNCH: 100_000.0, SYNC: 100.0})
    library = library_of(server, 3e6)
    look(library, server, 10.0)
    assert server.open_at == {-10}
    assert server.priorities == {(0, 0): 5}


@pytest.mark.parametrize(
    ("steps_per_s", "by", "window_s"),
    [(12.0, "the steps of the server", 0.085), (8.0, "its CPU time, which can be off by half", 0.1)],
)
def test_a_window_is_open_for_a_tenth_of_a_second_at_most(
    serving: Callable[[Mapping[str, float]], Server], steps_per_s: float, by: str, window_s: float
) -> None:
    """A step that is longer is in no window as a whole: waited for it would hold up the helper, and cost the server."""
    server = serving({LAUNCH: 20_000.0, SYNC: steps_per_s})
    library = library_of(server, 3e6)
    longest_s = 0.0
    for _ in range(150):
        before = server.now_ns
        library.tick([PID])
        longest_s = max(longest_s, (server.now_ns - before) / S)
        server.sleep(0.2)
    library.read(server.now_ns, ())
    assert f"launches by {by}" in library.notes[SAMPLED]
    assert longest_s == pytest.approx(window_s)
