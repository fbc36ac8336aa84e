"""What looks at a machine and at a server: every source is in the registry, and made as the registry makes it."""

from __future__ import annotations

import os
from importlib import import_module
from inspect import isfunction, signature
from pkgutil import walk_packages

import pytest

from llmtop import collectors
from llmtop.collectors.base import Aim
from llmtop.collectors.registry import OF_A_TARGET, OF_THE_HOST, host_collectors, target_collectors
from llmtop.model import Target

HERE = Target(os.getpid(), os.getpid(), "process", "python", ())
NEEDS_ANOTHER_PYTHON = ("tracing.probes.helper", "tracing.helper")
"""What runs in a process of its own, under the system's Python."""


def in_the_folder() -> set[str]:
    found = walk_packages(collectors.__path__, "llmtop.collectors.")
    names = {module.name.removeprefix("llmtop.collectors.") for module in found}
    mine = {name for name in names if not name.startswith(NEEDS_ANOTHER_PYTHON) and not name.endswith("__main__")}
    made_by = {name: vars(import_module(f"llmtop.collectors.{name}")).get("collector") for name in mine}
    return {name for name, made in made_by.items() if isfunction(made)}


def test_every_collector_in_the_folder_is_in_the_registry() -> None:
    assert in_the_folder() == {*OF_THE_HOST, *OF_A_TARGET}


@pytest.mark.parametrize("name", OF_THE_HOST)
def test_what_looks_at_the_host_is_made_of_nothing(name: str) -> None:
    assert str(signature(import_module(f"llmtop.collectors.{name}").collector)) == "() -> 'Collector'"


@pytest.mark.parametrize("name", OF_A_TARGET)
def test_what_looks_at_a_server_is_made_of_it_and_of_what_the_user_said(name: str) -> None:
    made = import_module(f"llmtop.collectors.{name}").collector
    assert str(signature(made)) == "(target: 'Target', aim: 'Aim') -> 'Collector'"


def test_collectors_have_names_of_their_own_and_a_period() -> None:
    made = (*host_collectors(), *target_collectors(HERE, Aim(())))
    assert len(made) == len(OF_THE_HOST) + len(OF_A_TARGET)
    assert len({one.name for one in made}) == len(made)
    assert all(one.period_s > 0 for one in made)
