"""The completion scripts, asked by the shells that they are for."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmtop.cli.grammar import commands
from llmtop.cli.run import COMMANDS, run
from llmtop.demo.incidents import INCIDENTS
from llmtop.demo.replays import REPLAYS
from tests.e2e.terminal import TerminalFactory

Ask = Callable[[str], list[str]]
"""What a shell offers for a line that ends where the cursor is."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("one.ncu-rep", "two words.ncu-rep"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], folder: Path) -> Callable[[str], Path]:
    def made(shell: str) -> Path:
        if shutil.which(shell) is None:
            pytest.skip(f"needs {shell}")
        assert run(["completion", shell]) == 0
        path = folder.parent / f"llmtop.{shell}"
        path.write_text(capsys.readouterr().out)
        return path

    return made


def said(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture(params=["bash", "fish"])
def ask(request: pytest.FixtureRequest, script: Callable[[str], Path]) -> Ask:
    path = script(request.param)

    def in_bash(line: str) -> list[str]:
        words = line.replace("=", " = ").split(" ")
        words = [word for word in words[:-1] if word] + words[-1:]  # bash itself takes = for a word
        quoted = " ".join(map(shlex.quote, words))
        asked = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _llmtop; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        return [one for one in said("bash", "--norc", "-c", f"source {shlex.quote(str(path))}; {asked}") if one]

    def in_fish(line: str) -> list[str]:
        asked = f"source {shlex.quote(str(path))}; complete -C {shlex.quote(line)}"
        offered = [one.split("\t")[0] for one in said("fish", "--no-config", "-c", asked)]
        return [one.rpartition("=")[2].replace("\\ ", " ") for one in offered]

    return in_bash if request.param == "bash" else in_fish


def test_commands_are_offered_first(ask: Ask) -> None:
    assert set(ask("llmtop ")) == set(COMMANDS)
    assert ask("llmtop rep") == ["report"]


def test_options_are_those_of_the_command(ask: Ask) -> None:
    assert ask("llmtop report --form") == ["--format"]
    assert ask("llmtop doctor --form") == []
    assert ask("llmtop --att") == ["--attach"]


@pytest.mark.parametrize("line", ["llmtop report --format ", "llmtop report --format="])
def test_values_are_offered_where_they_are_few(ask: Ask, line: str) -> None:
    assert set(ask(line)) == {"text", "md", "html", "json", "csv", "folded", "speedscope", "perfetto"}
    assert ask(f"{line}ht") == ["html"]


def test_incidents_of_the_demo(ask: Ask) -> None:
    assert set(ask("llmtop demo --incident ")) == {"list", *INCIDENTS, *REPLAYS}
    assert ask("llmtop demo --incident gpu-x") == ["gpu-xid"]


def test_a_process_is_a_number(ask: Ask) -> None:
    offered = ask("llmtop --attach ")
    assert "1" in offered
    assert all(one.isdecimal() for one in offered)


def test_reports_are_files(ask: Ask) -> None:
    assert ask("llmtop open on") == ["one.ncu-rep"]
    assert set(ask("llmtop open one.ncu-rep ")) >= {"one.ncu-rep", "two words.ncu-rep"}
    assert ask("llmtop report -o two") == ["two words.ncu-rep"]


def test_a_number_is_not_offered_files(ask: Ask) -> None:
    assert ask("llmtop snapshot --seconds ") == []


def test_after_launch_comes_a_command_and_then_its_files(ask: Ask) -> None:
    assert "uname" in ask("llmtop launch -- unam")
    assert ask("llmtop launch -- uname on") == ["one.ncu-rep"]


def test_zsh_completes_what_is_typed(script: Callable[[str], Path], terminal: TerminalFactory, folder: Path) -> None:
    setup = f"PS1='rea''dy> '; autoload -U compinit; compinit -u -D; source {script('zsh')}"
    with terminal(["zsh", "-f", "-i"], cwd=folder, env={"PS1": "wait> "}) as shell:
        for typed, then in (
            (f"{setup}\r", "ready>"),
            ("llmtop rep\t", "ready> llmtop report"),
            ("--form\t", "llmtop report --format="),
            ("ht\t", "--format=html"),
            ("one\t", "--format=html one.ncu-rep"),
            ("\x15llmtop --att\t", "ready> llmtop --attach="),
            ("\x15llmtop demo --dev\tcu\t", "ready> llmtop demo --device=cuda"),
            ("\x15llmtop demo --inc\tgpu-x\t", "ready> llmtop demo --incident=gpu-xid"),
            ("\x15llmtop launch -- /usr/bin/una\t", "ready> llmtop launch -- /usr/bin/uname"),
        ):
            shell.send(typed.encode())
            shell.wait_for(then)


def test_every_option_of_every_command_has_a_sentence() -> None:
    assert [(one.name, option.flags) for one in commands() for option in one.options if not option.about] == []
