"""Print what makes a shell complete llmtop's arguments, as in ~/.bashrc: source <(llmtop completion bash)."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from llmtop.cli.grammar import Argument, Command

SHELLS = ("bash", "zsh", "fish")
FILES = ("PATH", "FILE", "DIR")
PROCESS = "PID"
LAUNCHED = "launch"
"""Its arguments end in a command of somebody else's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish (llmtop completion fish | source)"
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from llmtop.cli.grammar import commands

    script = {"bash": bash, "zsh": zsh, "fish": fish}[args.shell]
    print("\n".join(script(commands())))
    return 0


# bash

_BASH_HEAD = """\
# Completion of llmtop for bash: source <(llmtop completion bash)
_llmtop() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= files= i
    if [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi  # bash takes --format=json for three words
    if [[ $cur == = ]]; then cur=; fi"""
_BASH_LAUNCHED = """\
    for ((i = 2; i < COMP_CWORD; i++)); do
        if [[ $command == launch && ${COMP_WORDS[i]} == -- ]]; then
            if ((i + 1 == COMP_CWORD)); then mapfile -t COMPREPLY < <(compgen -c -- "$cur"); return; fi
            command=-- files=1
        fi
    done"""
_BASH_TAIL = """\
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    if [[ $files ]]; then
        compopt -o filenames 2> /dev/null
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -F _llmtop llmtop"""


def bash(commands: Iterable[Command]) -> Iterator[str]:
    """Needs no bash-completion; bash 4."""
    known = tuple(commands)
    names = " ".join(one.name for one in known if one.name)
    yield _BASH_HEAD
    yield f"    case ${{COMP_WORDS[1]}} in {names.replace(' ', '|')})"
    yield "        ((COMP_CWORD > 1)) && command=${COMP_WORDS[1]} ;;"
    yield "    esac"
    yield _BASH_LAUNCHED
    yield "    case $command:$prev in"
    for command in known:
        for option in (one for one in command.options if one.value):
            yield f"        {'|'.join(f'{command.name}:{flag}' for flag in option.flags)}) {_bash_value(option)} ;;"
    for command in known:
        yield f"        {command.name}:*) {_bash_words(command, names)} ;;"
    yield "    esac"
    yield _BASH_TAIL


def _bash_words(command: Command, names: str) -> str:
    flags = " ".join(flag for option in command.options for flag in option.flags)
    if not command.name:
        return f"if [[ $cur == -* ]] || ((COMP_CWORD > 1)); then words='{flags}'; else words='{names}'; fi"
    if command.positional is None or command.name == LAUNCHED:
        return f"words='{flags}'"
    return f"if [[ $cur == -* ]]; then words='{flags}'; else {_bash_value(command.positional)}; fi"


def _bash_value(argument: Argument) -> str:
    if argument.words:
        return f"words='{' '.join(argument.words)}'"
    if argument.value == PROCESS:
        return "words=$(cd /proc && echo [0-9]*)"
    return "files=1" if argument.value in FILES else ":"


# zsh

_IN_MESSAGE, _IN_BRACKETS = "\\:", "\\:[]"
"""What _arguments takes for its own there."""


def zsh(commands: Iterable[Command]) -> Iterator[str]:
    """To be sourced, or to be a file on $fpath."""
    first, *others = commands
    yield "#compdef llmtop"
    yield "# Completion of llmtop for zsh: source <(llmtop completion zsh), or as _llmtop in a folder of $fpath"
    yield "_llmtop() {"
    yield "    local -a commands=("
    yield from (f"        {shlex.quote(f'{one.name}:{one.about}')}" for one in others)
    yield "    )"
    yield "    local command="
    yield "    if (( CURRENT > 2 && ${commands[(I)$words[2]:*]} )); then"
    yield "        command=$words[2]; shift words; (( CURRENT-- ))"
    yield "    fi"
    yield "    case $command in"
    for command in others:
        yield f"        {command.name}) _arguments -s -S {' '.join(_zsh_specs(command))} ;;"
    yield "        *)"
    yield "            if (( CURRENT == 2 )) && [[ $PREFIX != -* ]]; then _describe command commands"
    yield f"            else _arguments -s -S {' '.join(_zsh_specs(first))}; fi ;;"
    yield "    esac"
    yield "}"
    yield 'if [[ $funcstack[1] == _llmtop ]]; then _llmtop "$@"; else compdef _llmtop llmtop; fi'


def _zsh_specs(command: Command) -> Iterator[str]:
    for option in command.options:
        value = f":{_zsh_text(option.value)}:{_zsh_action(option)}" if option.value else ""
        about = f"[{_zsh_text(option.about, _IN_BRACKETS)}]"
        for flag in option.flags:
            joint = "" if not value else "=" if flag.startswith("--") else "+"
            yield shlex.quote(f"{'*' if option.is_repeatable else ''}{flag}{joint}{about}{value}")
    if command.name == LAUNCHED:
        yield "'(-)1:command:_command_names -e' '*::argument:_normal'"
    elif (last := command.positional) is not None:
        yield shlex.quote(f"{'*' if last.is_repeatable else ''}:{_zsh_text(last.value)}:{_zsh_action(last)}")


def _zsh_action(argument: Argument) -> str:
    if argument.words:
        return f"({' '.join(argument.words)})"
    return "_pids" if argument.value == PROCESS else "_files" if argument.value in FILES else " "


def _zsh_text(text: str, special: str = _IN_MESSAGE) -> str:
    for character in special:
        text = text.replace(character, f"\\{character}")
    return text


# fish


def fish(commands: Iterable[Command]) -> Iterator[str]:
    """To be sourced, or to be completions/llmtop.fish in fish's settings."""
    first, *others = commands
    yield "# Completion of llmtop for fish: llmtop completion fish | source"
    yield "complete -c llmtop -f"
    none = f"not __fish_seen_subcommand_from {' '.join(one.name for one in others)}"
    yield from (f"complete -c llmtop -n '{none}' -a {one.name} -d {_fish_text(one.about)}" for one in others)
    yield from _fish_arguments(first, none)
    for command in others:
        yield from _fish_arguments(command, f"__fish_seen_subcommand_from {command.name}")


def _fish_arguments(command: Command, condition: str) -> Iterator[str]:
    start = f"complete -c llmtop -n '{condition}'"
    for option in command.options:
        flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
        yield f"{start} {flags}{_fish_value(option)} -d {_fish_text(option.about)}"
    if command.name == LAUNCHED:
        yield f"{start} -a '(__fish_complete_subcommand --fcs-skip=2)'"
    elif command.positional is not None:
        yield f"{start}{_fish_value(command.positional).replace(' -r -F', ' -F').replace(' -x', '')}"


def _fish_value(argument: Argument) -> str:
    if argument.words:
        return f" -x -a {_fish_text(' '.join(argument.words))}"
    if argument.value == PROCESS:
        return " -x -a '(__fish_complete_pids)'"
    return "" if not argument.value else " -r -F" if argument.value in FILES else " -x"


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
