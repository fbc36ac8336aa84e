"""What the command line takes, read from its parsers: completions and the manual page are made of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from llmtop.cli.run import COMMANDS, LIVE, parser_of
from llmtop.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator


@frozen
class Argument:
    """One option, or one argument without a name.

    Attributes:
        flags: As typed, the short one first; empty for an argument without a name.
        value: What stands for its value in the help, as "PID"; empty for a switch.
        words: The values there are, where they are few.
    """

    flags: tuple[str, ...]
    value: str
    words: tuple[str, ...]
    about: str
    is_repeatable: bool = False


@frozen
class Command:
    """One command; `name` is empty for llmtop without one."""

    name: str
    about: str
    details: str
    arguments: tuple[Argument, ...]

    @property
    def options(self) -> tuple[Argument, ...]:
        """Those that have a name."""
        return tuple(one for one in self.arguments if one.flags)

    @property
    def positional(self) -> Argument | None:
        """The one without a name: no command has two."""
        return next((one for one in self.arguments if not one.flags), None)


def commands() -> tuple[Command, ...]:
    """The whole command line; llmtop without a command comes first."""
    first = _command("", "watch the server of a process, or the only one here", LIVE)
    return first, *(_command(name, about, name) for name, about in COMMANDS.items())


def _command(name: str, about: str, module: str) -> Command:
    parser = parser_of(module)
    return Command(name, about, " ".join((parser.description or "").split()), tuple(_arguments(parser)))


def _arguments(parser: argparse.ArgumentParser) -> Iterator[Argument]:
    for action in parser._actions:
        words = _words(action)
        value = "" if action.nargs == 0 else _value(action, words)
        is_repeatable = action.nargs in ("+", argparse.REMAINDER) or isinstance(action, argparse._AppendAction)
        yield Argument(tuple(action.option_strings), value, words, action.help or "", is_repeatable)


def _value(action: argparse.Action, words: tuple[str, ...]) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(words) if words else action.dest.upper()


def _words(action: argparse.Action) -> tuple[str, ...]:
    if "--incident" in action.option_strings:  # its type looks them up, so that the parser need not load the demo
        from llmtop.cli.demo import LIST, incident_names

        return LIST, *incident_names()
    return tuple(str(choice) for choice in action.choices or ())
