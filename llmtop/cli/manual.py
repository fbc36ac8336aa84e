"""The manual page, made of the command line's parsers: ``python -m llmtop.cli.manual > docs/llmtop.1``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from llmtop.cli.grammar import commands
from llmtop.cli.live import TOKEN_VARIABLE
from llmtop.collectors.tracing.switches import CHOICE, OFF

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.cli.grammar import Argument, Command

_ABOUT = """\
llmtop shows what an LLM server on NVIDIA GPUs is waiting for, and what to do about it: where its work stands on the
roofline, its queues and latencies, and its threads and GPUs on one time axis, live and without a profiler attached. It
opens profiles too (of Nsight Compute, Nsight Systems and other tools), with findings that name the evidence, the cause
and the next command. It only reads, and sends nothing anywhere. Without a command it finds the servers on this machine;
with none, it shows the GPUs. In the screen ? lists all keys."""
_ENVIRONMENT = {
    TOKEN_VARIABLE: "bearer token for the server's metrics",
    "LLMTOP_DCGM_URL": "where the DCGM exporter is (default http://127.0.0.1:9400/metrics)",
    OFF: "1: never load a probe",
    "LLMTOP_SUDO": "1: an ordinary user's probes are run by sudo, where it asks no password",
    CHOICE: "ebpf, perf or none: this tracer and no other",
    "LLMTOP_SCREENSHOTS": "the folder for screenshots (default: the home directory)",
    "LLMTOP_ASCII": "1: draw with ASCII only",
    "LLMTOP_DEBUG": "1: show where a fault of llmtop's own is",
    "NO_COLOR": "draw without colours",
}
_EXIT_STATUS = {
    "0": "done",
    "1": "the input or the target is at fault; of snapshot also: the server, or a part of it, is dead, hung or "
    "failing; of diff with --fail-above also: a report is slower than that allows",
    "2": "usage",
    "130": "interrupted",
}
_EXAMPLES = {
    "llmtop --attach 4242": "watch the server that process 4242 belongs to",
    "llmtop launch -- vllm serve MODEL": "start a server and watch it from its first second",
    "llmtop report run.ncu-rep --format md -o run.md": "what a report says, as Markdown",
    "llmtop diff main.sqlite change.sqlite --fail-above 3": "what became better or worse, and fail if it is slower",
    "llmtop snapshot --json --attach 4242 --seconds 10": "one look of ten seconds, for a script",
    "llmtop demo": "try all of it, without a GPU",
}


def manual() -> Iterator[str]:
    """The page's lines, in man(7)."""
    first, *others = commands()
    yield '.TH LLMTOP 1 "" llmtop "User Commands"'
    yield from (".SH NAME", r"llmtop \- watch what an LLM server on NVIDIA GPUs is waiting for")
    yield ".SH SYNOPSIS"
    for command in (first, *others):
        yield from (_synopsis(command), ".br")
    yield from (".SH DESCRIPTION", _text(_ABOUT), ".SH OPTIONS")
    for option in first.options:
        yield from _entry(option)
    yield ".SH COMMANDS"
    for command in others:
        yield from _command(command, first)
    for heading, table in (("ENVIRONMENT", _ENVIRONMENT), ("EXIT STATUS", _EXIT_STATUS), ("EXAMPLES", _EXAMPLES)):
        yield f".SH {heading}"
        for name, about in table.items():
            yield from (".TP", _bold(name), _text(about))


def _synopsis(command: Command) -> str:
    last = command.positional
    words = (
        f" {_text(last.value)}{'...' if last.is_repeatable and not last.value.endswith('...') else ''}" if last else ""
    )
    options = " [options]" if command.options else ""
    return rf"\fB{_text(f'llmtop {command.name}'.strip())}\fR{options}{words}"


def _command(command: Command, first: Command) -> Iterator[str]:
    yield from (f".SS {_text(command.name)}", _text(command.details))
    own = [option for option in command.options if option not in first.options]
    for option in (*own, *((command.positional,) if command.positional else ())):
        yield from _entry(option)
    shared = [one.flags[-1] for one in command.options if one in first.options and "--help" not in one.flags]
    if shared:
        yield from (".PP", f"As above: {', '.join(map(_bold, shared))}.")


def _entry(option: Argument) -> Iterator[str]:
    is_long = len(option.value) > _WIDEST
    value = rf"\fI{_text(_ONE if is_long else option.value)}\fR"
    words = [", ".join(map(_bold, option.flags)), value if option.value else ""]
    about = f"{option.about}. {_ONE} is one of {', '.join(option.value.split('|'))}" if is_long else option.about
    yield from (".TP", " ".join(word for word in words if word), _text(about))


_WIDEST = 100
"""Characters: roff breaks no line within what stands before a description."""
_ONE = "WHAT"


def _bold(text: str) -> str:
    return rf"\fB{_text(text)}\fR"


def _text(text: str) -> str:
    """Text that roff takes for text: no escapes, no line that is a request, and hyphens that can be copied."""
    plain = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in manual())
