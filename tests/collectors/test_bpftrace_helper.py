"""What bpftrace's helper reports of recorded events, which a program in bpftrace's place prints."""

from __future__ import annotations

import argparse
import errno
import json
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.bpftrace import helper as helper_module
from llmtop.collectors.tracing.bpftrace.budget import NS_PER_HIT
from llmtop.collectors.tracing.bpftrace.helper import BpftraceHelper
from llmtop.collectors.tracing.bpftrace.runner import Bpftrace
from llmtop.collectors.tracing.helper import protocol, system
from llmtop.collectors.tracing.helper.governor import HERTZ
from llmtop.collectors.tracing.helper.protocol import StoppedError
from llmtop.collectors.tracing.helper.system import UnavailableError

PID, TID, CHILD = 4_300_001, 4_300_002, 4_300_003
S, MS = 1_000_000_000, 1_000_000
PERIOD_NS = S // HERTZ
READ, FUTEX = 0, 202


class Link(protocol.Link):
    """Keeps what is said, and stops the helper once there are so many samples."""

    def __init__(self, samples: int, then: Callable[[], object]) -> None:
        self.said: list[Any] = []
        self._left, self._then = samples, then

    def say(self, report: Any) -> None:
        self.said.append(json.loads(json.dumps(report)))
        if report["kind"] == "sample":
            self._left -= 1
            self._then()

    def wait(self, descriptors: Sequence[int] = (), seconds: float | None = None) -> list[int]:
        if not self._left:
            raise StoppedError
        return list(descriptors)

    @property
    def samples(self) -> list[dict[str, Any]]:
        return [one for one in self.said if one["kind"] == "sample"]


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """The processes there are, with when they were started."""
    processes = {PID: "77"}
    monkeypatch.setattr(system, "start_time", lambda pid: processes.get(pid, ""))
    monkeypatch.setattr(system, "is_process", lambda pid: pid in processes)
    monkeypatch.setattr(system, "threads", lambda pid: [])
    monkeypatch.setattr(system, "kernel_stack", lambda pid, tid: [])
    return processes


def look(t_ns: int, **maps: Any) -> list[dict[str, Any]]:
    """What bpftrace prints of one moment, as records."""
    kinds = {name: "hist" if name in ("latency", "queue", "library") else "map" for name in maps}
    said = [{"type": kinds[name], "data": {f"@{name}": content}} for name, content in maps.items()]
    border = {"type": "printf", "data": f"begin {t_ns}\n"}
    return [border, *said, {"type": "printf", "data": "end\n"}]


def bpftrace(folder: Path, *runs: list[dict[str, Any]], version: str = "bpftrace v0.17.0") -> str:
    """A program that prints what one run after the other did, and goes on until it is told to stop."""
    for number, records in enumerate(runs):
        (folder / f"run{number}").write_text("".join(json.dumps(one) + "\n" for one in records))
    program = folder / "bpftrace"
    program.write_text(
        "#!/bin/sh\n"
        f'test "$1" = --version && echo {version} && exit\n'
        f'cd {folder}; cat "$5" >> scripts; set -- run*; mv "$1" now; cat now\n'
        "exec sleep 60\n"
    )
    program.chmod(0o755)
    return str(program)


def options(*pids: int, budget: float = 1.0, **others: Any) -> argparse.Namespace:
    return argparse.Namespace(
        **{"pids": list(pids), "interval": 0.5, "budget": budget, "stacks": False, "light": False, **others}
    )


def reports(
    program: str, samples: int, then: Callable[[], object] = lambda: None, **others: Any
) -> list[dict[str, Any]]:
    """The samples that a helper tells, and does something after each."""
    link = Link(samples, then)
    with closing(BpftraceHelper(options(PID, **others), program, link)) as one:
        one.start()
        with pytest.raises(StoppedError):
            one.run()
    return link.samples


def bucket(slot: int, count: int) -> dict[str, int]:
    return {"min": 1 << slot - 1, "max": (1 << slot) - 1, "count": count}


def test_a_look_is_told_as_a_sample(tmp_path: Path, alive: dict[int, str]) -> None:
    counted = {"latency": {f"{PID},{FUTEX}": [bucket(9, 4)]}, "time": {f"{PID},{FUTEX}": 5000}, "foreign_calls": 20}
    program = bpftrace(tmp_path, look(10 * S, **counted) + look(10 * S + 300 * MS, **counted))
    first, second = reports(program, 2)
    assert (first["t"], second["t"], second["elapsed"]) == (10 * S, 10 * S + 300 * MS, 300 * MS)
    assert (first["calls"], second["calls"]) == ([[PID, FUTEX, 4, 0, 5000, {"9": 4}]], [])
    assert second["hits"] == {"call": 4, "foreign_call": 20, "switch": 0, "sample": 0, "library": 0}
    assert {part: ns - first["observed"][part] for part, ns in second["observed"].items()} == {
        "calls": 300 * MS,
        "timed": 300 * MS,
        "scheduler": 300 * MS,
    }
    assert (second["shed"], second["lost"], second["missing"].keys()) == ("", 0, {"rounds of GPU work"})
    assert (second["library_observed"], second["uncounted"], second["unseen"]) == ([], [], [])


@pytest.mark.parametrize(("cpus", "keys"), [(2, 32768), (128, 16384), (1024, 4096), (None, 32768)])
def test_maps_have_room_for_fewer_the_more_cpus_there_are(
    tmp_path: Path, alive: dict[int, str], monkeypatch: pytest.MonkeyPatch, cpus: int | None, keys: int
) -> None:
    """Each entry is kept once for each CPU; releases call the setting by one or the other name."""
    monkeypatch.setattr("os.cpu_count", lambda: cpus)
    program = Path(bpftrace(tmp_path, look(S)))
    words = f"echo $BPFTRACE_MAP_KEYS_MAX $BPFTRACE_MAX_MAP_KEYS > {tmp_path}/keys"
    program.write_text(program.read_text().replace("cat ", f"{words}; cat ", 1))
    reports(str(program), 1)
    assert (tmp_path / "keys").read_text().split() == [str(keys)] * 2


def test_what_it_had_still_to_say_is_read_at_the_end(tmp_path: Path) -> None:
    """As it ends, bpftrace prints its maps."""
    program = tmp_path / "bpftrace"
    program.write_text(
        f"#!{sys.executable}\nimport signal, sys\n"
        """last = '{"type": "map", "data": {"@time": {"1,2": 3}}}'\n"""
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print(last)))\n"
        """print('{"type": "value"}', flush=True)\nsignal.pause()\n"""
    )
    program.chmod(0o755)
    run = Bpftrace(str(program), "", 16, named=False)
    while not run.records():
        select.select([run], [], [], 20)
    assert [(record.name, record.data) for record in run.end()] == [("time", {"1,2": 3})]
    assert run.end() == []


def test_processes_come_and_go(tmp_path: Path, alive: dict[int, str]) -> None:
    """A child is known by the list of the born, or by what is counted of it where that list has lost it."""
    alive[CHILD] = "78"
    maps = {"time": {f"{PID},{READ}": 5, f"{CHILD},{READ}": 7}, "renewed": {f"{PID}": 1}, "ended": {f"{TID}": PID}}
    later = {"time": {f"{PID},{READ}": 6, f"{CHILD},{READ}": 7}, "born": {"12": 1}}
    last = {"time": {f"{PID},{READ}": 6, f"{CHILD},{READ}": 9}}
    program = bpftrace(tmp_path, look(S, **maps) + look(2 * S, **later) + look(3 * S, **later) + look(4 * S, **last))
    first, second, third, fourth = reports(program, 4, then=lambda: alive.pop(CHILD, None))
    assert (first["born"], first["gone"], first["renewed"], first["ended"]) == ([CHILD], [], [PID], [[PID, TID]])
    assert sorted(first["calls"]) == [[PID, READ, 0, 0, 5, {}], [CHILD, READ, 0, 0, 7, {}]]
    assert (second["born"], second["gone"], second["calls"]) == ([], [CHILD], [[PID, READ, 0, 0, 6, {}]])
    assert (third["born"], third["gone"]) == ([], [])
    assert third["calls"] == [], "what was dropped with its process is told no more"
    assert fourth["calls"] == [[CHILD, READ, 0, 0, 2, {}]], "another of its id counts from 0"


def test_a_child_is_known_by_its_sleep_too(tmp_path: Path, alive: dict[int, str]) -> None:
    alive[CHILD] = "78"
    program = bpftrace(tmp_path, look(S, slept={f"{CHILD},{CHILD},{READ | 1 << 16}": 5}))
    (first,) = reports(program, 1)
    assert first["born"] == [CHILD]


def test_samples_stand_for_the_time_between_two(tmp_path: Path, alive: dict[int, str]) -> None:
    samples = {f"{PID},{TID},\n    hot+16\n    main+4\n,": 3, f"{PID},{TID},\n    hot+18\n    main+4\n,": 2}
    program = bpftrace(tmp_path, look(S, samples=samples) + look(2 * S, samples=samples))
    first, second = reports(program, 2)
    assert first["running"] == [[PID, TID, ["main", "hot"], 5 * PERIOD_NS]]
    assert (first["hits"]["sample"], second["hits"]["sample"]) == (5, 10)


def test_stacks_are_told_with_the_look_that_has_them(tmp_path: Path, alive: dict[int, str]) -> None:
    place = READ | 1 << 16
    slept = {"slept": {f"{PID},{TID},{place}": 3 * S}}
    stacks = {"sleep_stacks": {f"{PID},{TID},{place},\n    read+1\n    main+1\n,": 1}}
    begin, *rest = look(12 * S, **slept, **stacks)
    program = bpftrace(tmp_path, [*look(10 * S, **slept), begin, {"type": "printf", "data": "stacks\n"}, *rest])
    without, with_stacks = reports(program, 2, stacks=True)
    assert without["stacks"] == []
    assert with_stacks["stacks"] == [[PID, TID, READ, 1, 0, ["main", "read"], 3 * S]]


def test_what_is_lost_is_counted(tmp_path: Path, alive: dict[int, str]) -> None:
    """Events that did not fit the buffer, entries that did not fit a map; another refusal loses nothing."""
    refused: dict[str, Any] = {"type": "helper_error", "msg": "", "helper": "map_update_elem"}
    said: list[dict[str, Any]] = [
        {"type": "lost_events", "data": {"events": 3}},
        {**refused, "retcode": -errno.E2BIG},
        {**refused, "retcode": -errno.ENOENT},
    ]
    full = {"time": {f"{PID},{call}": 1 for call in range(4096)}}
    program = bpftrace(tmp_path, [*said, *look(S), *look(2 * S), *look(3 * S, **full), *look(4 * S, **full)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helper_module, "_MOST_KEYS", 4096)
        assert [one["lost"] for one in reports(program, 4)] == [4, 4, 4, 5], (
            "what finds no room is known once the look is read"
        )


def test_costly_probes_make_a_new_start_with_less(tmp_path: Path, alive: dict[int, str]) -> None:
    """The sums go on, what is shed is said, and only what is looked at is observed."""
    calls = 10_000
    busy = {"latency": {f"{PID},{READ}": [bucket(4, calls)]}}
    again = {"calls": {f"{PID},{READ}": 5}}
    program = bpftrace(tmp_path, look(S) + look(2 * S, **busy), look(4 * S, **again) + look(5 * S, **again))
    budget = calls * NS_PER_HIT["call"] / 1e9 / 2
    quiet, costly, *counted = reports(program, 4, budget=budget)
    assert (quiet["shed"], costly["shed"]) == ("", "no stacks, system calls counted, scheduler on")
    assert [one["calls"] for one in counted] == [[[PID, READ, calls + 5, 0, 0, {"4": calls}]], []]
    observed = [one["observed"] for one in (costly, *counted)]
    assert [one["timed"] for one in observed] == [observed[0]["timed"]] * 3
    assert observed[2]["calls"] - observed[1]["calls"] == S
    assert costly["hits"]["call"] == calls


def test_what_bpftrace_refuses_is_given_up_the_least_needed_first(tmp_path: Path, alive: dict[int, str]) -> None:
    program = tmp_path / "bpftrace"
    program.write_text("#!/bin/sh\necho ERROR: no such probe >&2; exit 1\n")
    program.chmod(0o755)
    link = Link(1, lambda: None)
    with (
        closing(BpftraceHelper(options(PID, stacks=True), str(program), link)) as one,
        pytest.raises(UnavailableError, match="bpftrace cannot attach its probes: ERROR: no such probe"),
    ):
        one.start()
    assert list(one.missing) == ["samples", "stacks", "scheduler", "syscalls"]
    assert one.missing["stacks"] == ("bpftrace refuses: ERROR: no such probe", "")


@pytest.mark.parametrize(
    ("version", "programs", "lacks"),
    [
        ("v0.17.0", ("/usr/bin/python3.11", "/usr/bin/python3.11"), ["functions in stacks"]),
        ("v0.17.0", ("/usr/bin/python3.11", "/usr/bin/node"), []),
        ("v0.19.0", ("/usr/bin/python3.11", "/usr/bin/python3.11"), []),
    ],
)
def test_processes_of_one_program_have_no_names_before_bpftrace_0_19(
    tmp_path: Path,
    alive: dict[int, str],
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    programs: tuple[str, str],
    lacks: list[str],
) -> None:
    alive[CHILD] = "78"
    links = dict(zip((f"/proc/{PID}/exe", f"/proc/{CHILD}/exe"), programs, strict=True))
    monkeypatch.setattr("llmtop.procfs.read_link", links.get)
    program = bpftrace(tmp_path, version=version)
    with closing(BpftraceHelper(options(PID, CHILD), program, Link(1, lambda: None))) as one:
        assert list(one.missing) == lacks
        assert one.processes == (PID, CHILD)
