"""Start a server, attach to it at once, and own its lifetime: signals, exit code, log.

The screen stays when the command ends and says how it ended; the exit code is then the command's. Leaving the screen
ends the command and everything it started. Where standard output is no terminal there is no screen: output and
signals are passed through, as if llmtop were not there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from llmtop.cli import live
from llmtop.errors import SeveralServersError, TargetError, UsageError, print_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from llmtop.model import Target
    from llmtop.servers.launch import Launched

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of launching."""
    live.add_watch_arguments(parser)
    parser.add_argument(
        "--coredump",
        metavar="DIR",
        nargs="?",
        const="",
        help="have the CUDA driver write a core dump of the GPU where a kernel fails, to DIR or to "
        "$XDG_STATE_HOME/llmtop/core-dumps (~/.local/state/llmtop/core-dumps); the screen reads it",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="the command and its arguments")


def run(args: argparse.Namespace) -> int:
    """Start the command and watch it."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("there is no command to launch; as in: llmtop launch -- vllm serve MODEL")
    has_screen = sys.stdout.isatty()
    if has_screen:
        live.refuse_unfit_terminal()
    with _environment(args, command) as environment:
        if not has_screen:
            return pass_through(command, environment)
        return watch(command, live.look_options(args), args.seconds, args.interval, environment)


@contextmanager
def _environment(args: argparse.Namespace, command: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """The command's environment; what core dumps of its GPU are asked for is said before it and after."""
    if args.coredump is None:
        yield os.environ
        return
    if args.command[:1] != ["--"]:
        raise UsageError("--coredump takes a folder: put -- before the command: llmtop launch --coredump -- COMMAND")
    from llmtop.cli.launch_core_dumps import prepared

    dumps = prepared(args.coredump, command, os.environ)
    for sentence in dumps.said:
        print_message(sentence)
    yield dumps.environment
    for sentence in dumps.at_the_end():
        print_message(sentence)


def watch(
    command: Sequence[str],
    options: live.LookOptions,
    seconds: float | None,
    interval: float,
    environment: Mapping[str, str],
) -> int:
    """Show the live screen of the command.

    Returns:
        The command's exit code when it ended before the screen was left; else the screen's.
    """
    from llmtop.servers.launch import Launched

    with Launched(command, env=environment) as launched:
        target = first_target(launched)
        if target is None:
            return ended_at_once(launched)
        screen_code = live.watch(target, options, launched=launched, seconds=seconds, interval=interval)
        code = launched.poll()
        launched.close(print_message)
    return screen_code or (code or 0)


def first_target(launched: Launched) -> Target | None:
    """What to watch first: the command, or what it has left running; None when it has ended without leaving any."""
    from llmtop import procfs
    from llmtop.servers.recognise import find_servers

    try:
        return live.find(launched.pid)
    except SeveralServersError as several:
        return several.servers[0]
    except TargetError:
        below = procfs.below(launched.supervisor_pid)
        return next(iter(find_servers(among=below)), None) or _first_alive(below)


def _first_alive(pids: Iterable[int]) -> Target | None:
    """The first of these that has not ended since they were listed."""
    for pid in pids:
        try:
            return live.find(pid)
        except TargetError:
            continue
    return None


def ended_at_once(launched: Launched) -> int:
    """Print what a command said that was over before there was anything to watch; its exit code is llmtop's."""
    code = launched.wait(1.0)
    launched.close()
    for line in launched.lines(100):
        print(line, file=sys.stderr)
    print_message(f"{launched.argv[0]} ended at once with exit code {code}")
    return 1 if code is None else code


def pass_through(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command with llmtop's own input and output, pass signals on, return its exit code."""
    from llmtop.cli.waiting import handling
    from llmtop.servers.launch import Launched

    started: list[Launched] = []
    early: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        if started:
            started[0].send_signal(number)
        else:
            early.append(number)

    heeded = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]  # but below nohup
    with handling(heeded, pass_on), Launched(command, capture=False, env=environment) as launched:
        started.append(launched)
        for missed in early:
            launched.send_signal(missed)
        code = launched.wait()
    assert code is not None
    return code
