"""Watch an LLM server live: find what a PID belongs to, start the collectors, show the screen."""

from __future__ import annotations

import argparse
import math
import os
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING

from llmtop import procfs, whats
from llmtop.collectors.base import DEFAULT_BUDGET, LEAST_BUDGET, Endpoint, Probes
from llmtop.errors import SeveralServersError, TargetError
from llmtop.frozen import frozen
from llmtop.model import LIVE, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from llmtop.collectors.base import Collector
    from llmtop.model import Fact, Target
    from llmtop.servers.follow import TargetChange
    from llmtop.servers.launch import Launched
    from llmtop.session import Session

MIN_INTERVAL_S = 0.25
_MOST_NAMED = 4
_MOST_PID = 1 << 22
"""PID_MAX_LIMIT of include/linux/threads.h: a larger number is a container's id."""
TOKEN_VARIABLE = "LLMTOP_METRICS_TOKEN"
"""Where the key of a metrics endpoint is looked for: command lines can be read by everyone, environments cannot."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the live screen."""
    add_attach_argument(parser)
    _add_dtype_argument(parser)
    add_watch_arguments(parser)


def add_attach_argument(parser: argparse.ArgumentParser) -> None:
    """Declare which server is looked at."""
    parser.add_argument(
        "-p",
        "--attach",
        metavar="PID",
        type=process_id,
        help="the server that this process belongs to, or this container, by its name or id",
    )


def add_interval_argument(parser: argparse.ArgumentParser) -> None:
    """Declare how often a server is looked at."""
    parser.add_argument(
        "--interval", metavar="S", type=interval, default=1.0, help="seconds between looks (default 1, at least 0.25)"
    )


def add_look_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how the server is looked at that `add_attach_argument` names."""
    _add_dtype_argument(parser)
    _add_common_look_arguments(parser)


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every command that ends in the live screen takes."""
    add_interval_argument(parser)
    parser.add_argument("--seconds", metavar="N", type=seconds, help="leave after N seconds, for scripts")
    _add_common_look_arguments(parser)


def _add_common_look_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be said of a server's look whoever has started it."""
    _add_probes_argument(parser)
    _add_endpoint_arguments(parser)
    _add_objective_arguments(parser)


def _add_dtype_argument(parser: argparse.ArgumentParser) -> None:
    """Declare what tells FP8 from BF16 where the server does not: GPM counts both on one pipe."""
    parser.add_argument(
        "--dtype", metavar="TYPE", type=dtype, help="what the server computes in (bf16, fp8 ...), where it does not say"
    )


def _add_objective_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what latencies were promised."""
    for key, what, usual in (("ttft", "time to the first token", "500/200"), ("itl", "time between tokens", "50/25")):
        parser.add_argument(
            f"--{key}-slo",
            metavar="P99[/P50]",
            type=objective,
            help=f"objective for the {what} in ms, p99 and, after a slash, p50 (default {usual}); 0 for none",
        )


def _objectives(args: argparse.Namespace) -> dict[str, Fact]:
    from llmtop.analysis.server.objectives import FACT

    told = {key: getattr(args, f"{key}_slo") for key in ("ttft", "itl")}
    return {
        f"{FACT}.{key}.{quantile}": limit_s
        for key, limits in told.items()
        if limits is not None
        for quantile, limit_s in zip(("p99", "p50"), limits, strict=True)
    }


def objective(text: str) -> tuple[float, float]:
    """An argparse type: milliseconds for p99 and p50, in seconds; 0 is none.

    >>> objective("800"), objective("500/200"), objective("0")
    ((0.8, 0.0), (0.5, 0.2), (0.0, 0.0))
    """
    words = text.split("/")
    try:
        limits = [float(word) / 1000 for word in words]
    except ValueError:
        limits = [-1.0]
    if len(limits) > 2 or not all(0 <= limit < 1e6 for limit in limits):
        raise argparse.ArgumentTypeError(f"{text!r} is not milliseconds for p99, or for p99 and p50 as 500/200")
    return limits[0], limits[1] if len(limits) > 1 else 0.0


def _add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where metrics are, and a key for them; it is never taken from the server's own environment."""
    parser.add_argument(
        "--metrics-header",
        metavar="'NAME: VALUE'",
        type=header,
        action="append",
        default=[],
        help=f"sent when the metrics are read; a bearer token is better kept in {TOKEN_VARIABLE}",
    )
    parser.add_argument(
        "--metrics-url",
        metavar="URL",
        type=metrics_url,
        help="where the server's metrics are, as this machine sees it (a container's published port), where llmtop "
        "cannot find that out: http://localhost:8000/metrics",
    )


def metrics_url(text: str) -> str:
    """An argparse type: a URL that can be asked; without a path that of nearly all servers.

    >>> metrics_url("http://localhost:8000"), metrics_url("https://10.0.0.3:8443/llm/metrics")
    ('http://localhost:8000/metrics', 'https://10.0.0.3:8443/llm/metrics')
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        is_known = False
    if not is_known or parts.username is not None or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is no URL as http://localhost:8000/metrics")
    return text if parts.path.strip("/") else parts._replace(path="/metrics").geturl()


def _add_probes_argument(parser: argparse.ArgumentParser) -> None:
    """Declare how closely the kernel is asked about the server."""
    parser.add_argument(
        "--probes",
        type=Probes,
        choices=tuple(Probes),
        default=Probes.FULL,
        help="probes in the kernel: full is all that fits the budget, light has no stacks and no library calls "
        "(default full; docs/ebpf.md)",
    )
    parser.add_argument(
        "--no-ebpf", dest="probes", action="store_const", const=Probes.OFF, help="the same as --probes off"
    )
    parser.add_argument(
        "--overhead-budget",
        metavar="PERCENT",
        type=overhead_budget,
        default=DEFAULT_BUDGET,
        help=f"what probes may cost the server, in per cent of one core (default {100 * DEFAULT_BUDGET:g}): what costs "
        "more is looked at in samples, or not at all",
    )


def overhead_budget(text: str) -> float:
    """An argparse type: per cent of one core, as a share.

    >>> overhead_budget("3"), overhead_budget("0.5%")
    (0.03, 0.005)
    """
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not LEAST_BUDGET <= share <= 1:
        bounds = f"between {100 * LEAST_BUDGET:g} and 100 (per cent of one core)"
        raise argparse.ArgumentTypeError(f"{text!r} is not {bounds}")
    return share


@frozen
class LookOptions:
    """How a server is looked at, beside which one and how often.

    Attributes:
        dtype: What it computes in, where it does not say.
        endpoint: What the user said of where its metrics are; the token of the environment comes with it.
        probes: How closely the kernel is asked.
        budget: Share of one core that this may cost the server.
        objectives: What latencies were promised, as facts of a trace's origin.
    """

    dtype: str | None = None
    endpoint: Endpoint = field(default_factory=lambda: Endpoint(_metrics_headers(())))
    probes: Probes = Probes.FULL
    budget: float = DEFAULT_BUDGET
    objectives: Mapping[str, Fact] = field(default_factory=dict)


def look_options(args: argparse.Namespace, dtype: str | None = None) -> LookOptions:
    """What the command line says of how a server is looked at; its dtype is no option of each command."""
    endpoint = Endpoint(_metrics_headers(args.metrics_header), args.metrics_url or "")
    return LookOptions(dtype, endpoint, args.probes, args.overhead_budget, _objectives(args))


def _metrics_headers(told: Sequence[tuple[str, str]]) -> dict[str, str]:
    """What is sent when metrics are read: the token of the environment, and what the command line says."""
    token = os.environ.get(TOKEN_VARIABLE)
    return ({"Authorization": f"Bearer {token}"} if token else {}) | dict(told)


def run(args: argparse.Namespace) -> int:
    """Attach to the given process, or to the only server here, or let the user choose."""
    target = find(args.attach, may_ask=True) if args.attach is not None else choose()
    return watch(target, look_options(args, args.dtype), seconds=args.seconds, interval=args.interval)


def watch(
    target: Target | None,
    options: LookOptions,
    *,
    launched: Launched | None = None,
    seconds: float | None = None,
    interval: float = 1.0,
) -> int:
    """Show the live screen until the user leaves it.

    Args:
        target: None shows this machine's GPUs alone.
        options: How it is looked at.
        launched: The command that llmtop itself started, for the log pane.
        seconds: Leave by itself after so long.
        interval: Seconds between polls.
    """
    refuse_unfit_terminal()
    session = live_session(target, interval, options, launched=launched)
    session.prepare()  # threads would take turns with the loading of the screen; a process is on a core of its own
    from llmtop.tui.screens.live import watch_session

    return watch_session(session, session.target, launched=launched, seconds=seconds, interval=interval)


def attached_session(args: argparse.Namespace, interval: float, *, window_s: float | None = None) -> Session:
    """That of a command without a screen: of the server that `--attach` names, or of this machine's GPUs.

    Raises:
        TargetError: There is no such process, or several servers run below it.
    """
    target = find(args.attach) if args.attach is not None else None
    return live_session(target, interval, look_options(args, args.dtype), window_s=window_s)


def live_session(
    target: Target | None,
    interval: float,
    options: LookOptions | None = None,
    *,
    launched: Launched | None = None,
    window_s: float | None = None,
) -> Session:
    """A session, not yet started, with every collector for the target; it follows the target's restarts."""
    from llmtop import procfs
    from llmtop.collectors.registry import host_collectors
    from llmtop.model import Missing, Trace
    from llmtop.session import DEFAULT_WINDOW_S, Session

    options = options or LookOptions()
    origin = replace(LIVE, facts=options.objectives)
    window_s = window_s or DEFAULT_WINDOW_S
    if target is None:
        session = Session(host_collectors(), origin, interval_s=interval, window_s=window_s)
        if procfs.is_hidden(1):
            hidden = Missing(
                whats.TARGET, Unknown("/proc hides other users' processes (hidepid)", "run llmtop with sudo")
            )
            session.recorder.append("target", Trace(LIVE, missing=(hidden,)))
        return session
    target = told_dtype(target, options.dtype)
    following = _Following(target, options, launched)
    return Session(
        host_collectors(), origin, interval_s=interval, window_s=window_s, target=target, following=following
    )


class _Following:
    """The target's whereabouts, and the collectors that look at it there."""

    def __init__(self, target: Target, options: LookOptions, launched: Launched | None) -> None:
        from llmtop.servers.follow import Follower

        self._options = options
        self._launched = launched
        self._follower = Follower(target, launched=launched, dtype=options.dtype)

    def look(self) -> TargetChange | None:
        return self._follower.look()

    def collectors(self, target: Target) -> Iterable[Collector]:
        from llmtop.collectors.base import Aim
        from llmtop.collectors.registry import target_collectors
        from llmtop.servers.registry import ENGINES

        launched, options = self._launched, self._options
        output, environment = (None, None) if launched is None else (launched.lines, launched.environment)
        aim = Aim(ENGINES, self._follower.urls, options.endpoint, output, options.probes, options.budget, environment)
        return target_collectors(target, aim)


def find(pid: int, *, may_ask: bool = False) -> Target:
    """The server that a process belongs to.

    Args:
        pid: Any process of it, or one that started it.
        may_ask: Where several run below the process, let the user choose one on the screen.
    """
    from llmtop.servers.recognise import find_target

    try:
        return find_target(pid)
    except SeveralServersError as several:
        if not may_ask:
            raise
        return ask(several.servers)
    except TargetError as error:
        raise TargetError("".join((str(error), *_said_of_the_end(pid)))) from None


def _said_of_the_end(pid: int) -> Iterator[str]:
    """How a process that is no more has ended, and which servers there are: its PID is of before a restart, often."""
    from llmtop.collectors.exits import how_it_ended

    if ended := how_it_ended(pid):
        yield f"; it has ended: {ended}"
    if here := servers_here():
        yield f"; servers here: {here}"


def servers_here() -> str:
    """The newest servers on this machine, each with its PID: "4242 (vLLM :8000)"; empty where there is none."""
    from llmtop.servers.recognise import find_servers, in_short

    by_age = sorted(find_servers(), key=_start_ticks, reverse=True)
    return ", ".join(f"{one.root_pid} ({in_short(one)})" for one in by_age[:_MOST_NAMED])


def _start_ticks(server: Target) -> int:
    state = procfs.stat(server.root_pid)
    return 0 if state is None else state.start_ticks


def told_dtype(target: Target, dtype: str | None) -> Target:
    """The target with the dtype that the user gave, which counts for more than what was found."""
    return replace(target, dtype=dtype) if dtype is not None else target


def choose() -> Target | None:
    """The only server on this machine, the one the user picks, or None when there is none."""
    from llmtop.servers.recognise import find_servers

    servers = find_servers()
    if len(servers) < 2:
        return servers[0] if servers else None
    return ask(servers)


def ask(servers: Sequence[Target]) -> Target:
    """Let the user choose one of several servers.

    Raises:
        SystemExit: The user left without one.
        TargetError: There is no terminal to ask on.
    """
    refuse_unfit_terminal()
    from llmtop.tui.screens.choose import choose_target

    target = choose_target(servers)
    if target is None:
        raise SystemExit(0)
    return target


def refuse_unfit_terminal() -> None:
    """Fail in one line where no screen can be drawn."""
    from llmtop.tui.terminal import guard

    reason = guard()
    if reason is not None:
        raise TargetError(reason)


def process_id(text: str) -> int:
    """An argparse type: a process id, or a container, which stands for its first process.

    Raises:
        TargetError: No such container runs here.

    >>> process_id("42")
    42
    """
    from llmtop.servers.containers import first_process, is_name

    if text.isdecimal() and 0 < int(text) <= _MOST_PID:
        return int(text)
    if not is_name(text) or not text.strip("0"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a process id nor a container's name or id")
    return first_process(text)


def dtype(text: str) -> str:
    """An argparse type: a precision by any of its names.

    >>> dtype("bfloat16")
    'bf16'
    """
    from llmtop.analysis.gpus.models import precision_of

    precision = precision_of(text)
    if isinstance(precision, Unknown):
        raise argparse.ArgumentTypeError(f"{text!r} is no precision: bf16, fp16, fp32, tf32, fp64, fp8, int8 or fp4")
    return precision


def header(text: str) -> tuple[str, str]:
    """An argparse type: a header of HTTP.

    >>> header("X-Key: abc")
    ('X-Key', 'abc')
    """
    name, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[\w-]+", name.strip()) or not value.strip().isprintable():
        raise argparse.ArgumentTypeError("it is no header, as in 'Authorization: Bearer KEY'")
    return name.strip(), value.strip()


def interval(text: str) -> float:
    """An argparse type: seconds between polls."""
    value = seconds(text)
    if value < MIN_INTERVAL_S:
        raise argparse.ArgumentTypeError(f"{text} s is too often: GPM and the kernel's counters need {MIN_INTERVAL_S}")
    return value


def seconds(text: str) -> float:
    """An argparse type: a positive number of seconds.

    >>> seconds("1.5")
    1.5
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value
