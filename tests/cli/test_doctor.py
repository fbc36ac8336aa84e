"""The doctor's two forms: lines for people, and a document for scripts."""

from __future__ import annotations

import argparse
import json
import os
import threading

import pytest

from llmtop import remedies
from llmtop.cli import doctor
from llmtop.collectors import registry
from llmtop.collectors.base import DoctorCheck
from llmtop.model import Unknown

FOUND = (
    DoctorCheck("user", "root: all processes can be read"),
    DoctorCheck(
        "ptrace", Unknown("ptrace is for root only (ptrace_scope 2)", "sudo sysctl kernel.yama.ptrace_scope=0")
    ),
    DoctorCheck("BTF", Unknown("the kernel carries no type information")),
)


def printed(capsys: pytest.CaptureFixture[str], *, as_json: bool) -> str:
    assert doctor.run(argparse.Namespace(json=as_json)) == 0, "finding something missing is no failure"
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "checks", lambda: FOUND)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TERM", "xterm-256color")


def test_each_check_is_a_line_and_its_remedy_another_that_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, as_json=False).splitlines() == [
        "ok  user: root: all processes can be read",
        "no  ptrace: ptrace is for root only (ptrace_scope 2)",
        "      → sudo sysctl kernel.yama.ptrace_scope=0",
        "no  BTF: the kernel carries no type information",
    ]


def test_what_is_well_names_llmtop_so_that_sudo_finds_it_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = (DoctorCheck("user", "user 7: only its own processes (sudo llmtop doctor shows the rest)"),)
    monkeypatch.setattr(registry, "checks", lambda: checks)
    monkeypatch.setattr(remedies, "own_command", lambda: ".venv/bin/llmtop")
    shown = "user 7: only its own processes (sudo .venv/bin/llmtop doctor shows the rest)"
    assert printed(capsys, as_json=False) == f"ok  user: {shown}\n"
    assert json.loads(printed(capsys, as_json=True))["checks"][0]["state"] == shown


def test_root_is_not_told_to_use_sudo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "      → sysctl kernel.yama.ptrace_scope=0" in printed(capsys, as_json=False).splitlines()


def test_the_document_has_the_same_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed(capsys, as_json=True)) == {
        "schema": "llmtop.doctor/1",
        "checks": [
            {"what": "user", "ok": True, "state": "root: all processes can be read"},
            {
                "what": "ptrace",
                "ok": False,
                "reason": "ptrace is for root only (ptrace_scope 2)",
                "remedy": "sudo sysctl kernel.yama.ptrace_scope=0",
            },
            {"what": "BTF", "ok": False, "reason": "the kernel carries no type information", "remedy": ""},
        ],
    }


def test_a_source_that_hangs_is_named_and_the_others_are_told() -> None:
    def hang() -> tuple[DoctorCheck, ...]:
        threading.Event().wait()
        return ()

    found = registry.bounded({"slow": hang, "host": lambda: FOUND}, 0.2)
    assert found[1:] == FOUND
    assert found[0].what == "slow"
    assert str(found[0].state).startswith("hung: it has not answered within ")


def test_where_ascii_is_asked_for_no_other_characters_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    said = printed(capsys, as_json=False)
    assert said.isascii()
    assert "      -> sudo sysctl kernel.yama.ptrace_scope=0" in said.splitlines()
