"""The bytecode in the tree: it is of the sources in the tree, for each machine; and which program a kernel can load."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from llmtop.collectors.tracing.probes.helper import scheduler
from llmtop.collectors.tracing.probes.helper.programs import COMPILED, FIELDS, NUMBERS, ProgramText

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[3] / "scripts" / "compile-probes"))
MACHINES = ("x86_64", "aarch64")


def units(machine: str) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in (COMPILED / machine).iterdir()}


@pytest.mark.parametrize("machine", MACHINES)
def test_the_programs_in_the_tree_are_of_the_sources_in_the_tree(machine: str) -> None:
    wanted = {
        source.path(machine, in_namespace=in_namespace).stem: SCRIPT["made_of"](source, in_namespace)
        for source in SCRIPT["sources"](machine)
        for in_namespace in (False, True)
    }
    found = units(machine)
    assert {name: unit["made_of"] for name, unit in found.items()} == wanted, "run scripts/compile-probes"
    for unit in found.values():
        for one in unit["functions"].values():
            assert {name for _, name in one["maps"]} <= unit["maps"].keys()
            assert {name for _, name in one["numbers"]} <= NUMBERS.keys()
            assert {name for _, name in one["fields"]} <= FIELDS.keys()


@pytest.mark.parametrize("machine", MACHINES)
def test_what_differs_between_kernels_is_put_in_when_a_program_is_loaded(machine: str) -> None:
    """Else a program would read what lies where another kernel has the field: no compiler may have worked it out."""
    found = units(machine)

    def put_in(name: str, kind: str) -> dict[str, set[str]]:
        return {key: {name for _, name in one[kind]} for key, one in found[name]["functions"].items()}

    assert put_in("lifecycle", "fields")["on_fork"] == {"sched_process_fork.child_pid"}
    for name in ("scheduler-fields", "scheduler-no-calls-namespace"):
        assert put_in(name, "fields") == {
            "on_switch": {"sched_switch.prev_state", "sched_switch.next_pid"},
            "on_waking": {"sched_waking.pid"},
            "on_wakeup": {"sched_wakeup.pid"},
        }
    assert put_in("library-no-cookies", "numbers") == {"enter_any": {"COOKIE"}, "leave_any": {"COOKIE"}}
    asks_ids = {"NAMESPACE_DEVICE", "NAMESPACE_INODE"}
    inside = {name for name in found if any(asks_ids <= names for names in put_in(name, "numbers").values())}
    assert inside == {name for name in found if name.endswith("-namespace")}


def test_the_machines_differ_by_their_registers_and_the_numbers_of_their_calls() -> None:
    here, there = (units(machine) for machine in MACHINES)
    functions = [(name, key) for name, unit in here.items() for key in unit["functions"]]
    differ = {key for name, key in functions if here[name]["functions"][key] != there[name]["functions"][key]}
    assert differ >= {"on_call", "on_switch", "on_waking", "enter_any", "leave_any"}


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
