"""The command line's frame: which command, its arguments, and one line on stderr when it fails."""

from __future__ import annotations

import argparse
import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from llmtop import __version__
from llmtop.cli.output import OutputError, silence, standard_output
from llmtop.errors import FilesError, LlmtopError, UsageError, print_message
from llmtop.text import clean, did_you_mean

if TYPE_CHECKING:
    from types import ModuleType

COMMANDS = {
    "launch": "start a server, attach to it and own its lifetime",
    "open": "explore reports",
    "report": "the same analysis without a screen: text, md, html, json or csv",
    "diff": "what became better or worse between reports, and why",
    "snapshot": "one machine-readable look at this machine and its server",
    "record": "keep what the live screen would show in a file that open plays",
    "share": "a copy of a recording without secrets, or a page of it",
    "export": "serve what the panes show to Prometheus",
    "demo": "start the embedded LLM server with load and attach to it",
    "doctor": "what can be collected here, what cannot, why, and what would change that",
    "completion": "print what makes a shell complete llmtop's arguments: bash, zsh or fish",
}
"""Each is a module of this package with `add_arguments(parser)` and `run(args) -> int`, loaded when it is used."""
LIVE = "live"
"""The module behind `llmtop` without a command."""

INTERRUPTED = 130


def run(argv: list[str]) -> int:
    """Run one command.

    Returns:
        The exit code: 0 done, 1 the input or the target is at fault, 2 usage, 130 interrupted.
    """
    _survive_any_encoding()
    try:
        with standard_output():
            return _dispatch(argv)
    except OutputError as error:
        silence()
        return _say(str(error), error.exit_code)
    except FilesError as error:
        for message in error.messages:
            _say(message, error.exit_code)
        return error.exit_code
    except LlmtopError as error:
        return _say(str(error), error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        silence()
        return 0
    except Exception as error:
        if os.environ.get("LLMTOP_DEBUG"):
            raise
        return _say(f"a fault of its own: {type(error).__name__}: {error}; LLMTOP_DEBUG=1 shows where", 1)


def _survive_any_encoding() -> None:
    """Let an ASCII terminal show "?" for what it has no character for, where Python would fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _dispatch(argv: list[str]) -> int:
    name = argv[0] if argv and argv[0] in COMMANDS else LIVE
    parser = parser_of(name)
    arguments, unknown = parser.parse_known_args(argv[1:] if name != LIVE else _checked_top(argv))
    if unknown:
        flag = unknown[0].split("=")[0]
        parser.error(f"there is no {flag}{did_you_mean(flag, parser._option_string_actions)}")
    return int(import_module(f"llmtop.cli.{name}").run(arguments))


class OneLineParser(argparse.ArgumentParser):
    """Says in one line what is wrong and what is near it: the usage is what --help shows."""

    def error(self, message: str) -> NoReturn:
        self.exit(UsageError.exit_code, f"{self.prog}: {clean(' '.join(message.split()))} ({self.prog} --help)\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            words = [str(choice) for choice in action.choices]
            near = did_you_mean(str(value), words) or f", but {', '.join(words)}"
            raise argparse.ArgumentError(action, f"there is no {str(value)!r}{near}")


def parser_of(name: str) -> argparse.ArgumentParser:
    """What reads the arguments of one of `COMMANDS`, or of `LIVE`."""
    module = import_module(f"llmtop.cli.{name}")
    return _command_parser(name, module) if name != LIVE else _top_parser(module)


def _command_parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    parser = OneLineParser(prog=f"llmtop {name}", description=_sentence(module.__doc__ or ""))
    module.add_arguments(parser)
    return parser


def _top_parser(module: ModuleType) -> argparse.ArgumentParser:
    commands = "\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items())
    parser = OneLineParser(
        prog="llmtop",
        usage="llmtop [--attach PID] [options] | llmtop COMMAND ...",
        description="What is this LLM server waiting for, and what should I do about it?",
        epilog=f"commands (llmtop COMMAND --help):\n{commands}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"llmtop {__version__}")
    module.add_arguments(parser)
    return parser


def _checked_top(argv: list[str]) -> list[str]:
    """Turn the two likely slips of the hand into a hint: a bare PID and a bare file."""
    first = argv[0] if argv else "-"
    if first.startswith("-"):
        return argv
    if first.isdecimal():
        raise UsageError(f"{first} is not a command; to watch process {first}: llmtop --attach {first}")
    if Path(first).exists():
        raise UsageError(f"{first} is not a command; to explore it: llmtop open {first}")
    near = did_you_mean(first, COMMANDS) or f"; there are: {', '.join(COMMANDS)}"
    raise UsageError(f"{first} is not a command{near} (llmtop --help)")


def _sentence(docstring: str) -> str:
    return docstring.strip().split("\n\n")[0]


def _say(message: str, exit_code: int) -> int:
    print_message(message)
    return exit_code
