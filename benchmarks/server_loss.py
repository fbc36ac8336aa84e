"""What a real server loses while llmtop watches it, its first seconds apart, with bounds of 95 % confidence.

    python benchmarks/server_loss.py --url http://127.0.0.1:8000 --pid PID --minutes 8     a server that runs here
    python benchmarks/server_loss.py --demo --clients 8                                    the demo server, on the CPU
    python benchmarks/server_loss.py --url ... --pid ... --modes full,off,none --minutes 9

Clients ask again as soon as they are answered, so that the server does what it can; they do not stream, so that they
take little themselves, and answers differ in length, so that they do not ask in waves. Who asks when is a matter of
chance then, and so is the server's rate, by 3 to 20 % from window to window. `--together --tokens 8000` has all of them
ask at once for answers of that length, and looks only while every one of them is being answered: the engine decodes one
batch, nothing comes or goes, and a loss of 1 % shows within minutes.

llmtop comes and goes, the kinds of probes (`--modes`) in an order drawn anew in each round; "none" starts nothing and
shows what the method itself makes of chance. Each time llmtop is there, two windows are taken: the first `--settle`
seconds from its start ("first"), then `--window` seconds ("after"). Both are compared with half a window just before
and half a one just after llmtop was there, by how many tokens had been made: while a batch decodes, a step takes longer
in proportion to them, for there is more KV cache to read. No two comparisons share a window, so they are independent.
"minute" is what both make of the first minute. With `--settle 0` there is one window, its start included.

Tokens and steps are the server's own counters (/metrics), read at the edges of the windows and once a second between
them, with the time halfway between question and answer. CPU time is of all processes of the server, by their CPU
clocks: other programs on the machine disturb it less than they do tokens. A loss is the Hodges-Lehmann estimate, and
its bounds are those of Wilcoxon's signed-rank test: neither is moved by a few wild windows. "at most" is what the loss
is under, and "at least" what it is over, each with 95 % confidence. What happens seldom and costs much does not move
them either: that shows in the plain mean, the worst window and the worst second, which stands beside the worst one
without llmtop.

How many minutes it takes depends on the server alone: the last column says how many would have been enough. Ctrl+C
reports what there is so far.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import signal
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.error import URLError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, DemoServer, TimedTerminal, Use, machine, table
from llmtop import procfs
from llmtop.servers.recognise import find_target

BUDGET = 0.01
CONFIDENCE = 0.95
REST_S, CELL_S, COMES_AND_GOES_S = 0.5, 1.0, 1.0
LONGEST_WAVE_S = 180.0
PROMPTS_S = 1.5
"""Until all prompts of a wave are read, and how long one is looked at to tell how long it lasts."""
NONE = "none"
MODES = ("full", "light", "off", NONE)
_TOKENS = re.compile(r"^\w+:(?:generation_tokens_total|tokens_predicted_total)(?:\{.*\})? (\S+)", re.MULTILINE)
"""vLLM's, SGLang's and the demo's names, and llama.cpp's, which moves at the end of a request only."""
_STEPS = re.compile(r"^vllm:iteration_tokens_total_count(?:\{.*\})? (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Look:
    """The server's counters at one moment. `at_s` is of tokens and steps, `cpu_at_s` of the CPU time."""

    at_s: float
    tokens: float
    steps: float
    cpu_at_s: float
    cpu_ns: int


@dataclass(frozen=True, slots=True)
class Window:
    """What was done between some looks.

    Attributes:
        cpu_us: Of the whole server, per token.
        worst: Tokens/s of one cell.
        at_tokens: How many tokens had been made in the middle of it.
    """

    tokens_per_s: float
    cpu_us: float
    steps_per_s: float = 0.0
    worst: float = 0.0
    at_tokens: float = 0.0

    @classmethod
    def of(cls, looks: Sequence[Look]) -> Window:
        """From the first to the last of them."""
        first, last = looks[0], looks[-1]
        cells = [(b.tokens - a.tokens) / (b.at_s - a.at_s) for a, b in pairwise(looks)]
        rate = (last.tokens - first.tokens) / (last.at_s - first.at_s)
        cpu = (last.cpu_ns - first.cpu_ns) / (last.cpu_at_s - first.cpu_at_s) / 1e3
        steps = (last.steps - first.steps) / (last.at_s - first.at_s)
        return cls(rate, cpu / rate if rate > 0 else math.inf, steps, min(cells), (first.tokens + last.tokens) / 2)


@dataclass(frozen=True, slots=True)
class Turn:
    """llmtop was there once: what the server did meanwhile, just before and just after; its and its helpers' CPU.

    `own` and `helpers` are shares of a core.
    """

    before: Window
    first: Window | None
    after: Window
    behind: Window
    own: float = 0.0
    helpers: float = 0.0


@dataclass(slots=True)
class Losses:
    """What was lost each time, as shares of what was done without llmtop."""

    tokens: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, watched: Window, turn: Turn) -> None:
        """One more comparison."""
        one, other = turn.before, turn.behind
        made = other.at_tokens - one.at_tokens
        share = (watched.at_tokens - one.at_tokens) / made if made else 0.5

        def expected(before: float, behind: float) -> float:
            return (1 - share) * before + share * behind

        token_s = expected(1 / one.tokens_per_s, 1 / other.tokens_per_s)
        self.tokens.append(1 - watched.tokens_per_s * token_s)
        self.cpu.append(watched.cpu_us / expected(one.cpu_us, other.cpu_us) - 1)
        if one.steps_per_s and other.steps_per_s:
            self.steps.append(1 - watched.steps_per_s * expected(1 / one.steps_per_s, 1 / other.steps_per_s))


class Load:
    """Clients that each ask again as soon as they are answered; answers have half to one and a half of `tokens`."""

    waves = 0
    """How often all have asked at once."""

    def __init__(self, url: str, clients: int, tokens: int) -> None:
        self._url, self._tokens, self._clients = url, tokens, clients
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:
            self._model = json.load(answer)["data"][0]["id"]
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask_on, args=(i,), daemon=True) for i in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def wait_for(self, server: Server, seconds: float) -> None:
        """Nothing to wait for: the load goes on alike."""

    def _length(self, chance: random.Random) -> int:
        return chance.randint(max(1, self._tokens // 2), max(1, self._tokens * 3 // 2))

    def _ask_on(self, number: int) -> None:
        body = {"model": self._model, "ignore_eos": True, "stream": False}
        chance, turn = random.Random(number), 0
        while not self._over.is_set():
            turn += 1
            length = self._length(chance)
            prompt = f"{number} {turn} the quick brown fox jumps over the lazy dog"
            text = json.dumps(body | {"prompt": prompt, "max_tokens": length})
            request = urllib.request.Request(
                f"{self._url}/v1/completions", text.encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    answer.read()
            except (URLError, OSError) as error:
                if not self._over.is_set():
                    print(f"a client was refused: {error}", file=sys.stderr)
                    time.sleep(1.0)


class Waves(Load):
    """Clients that ask all at once for answers of one length, again when the last of them is answered."""

    def __init__(self, url: str, clients: int, tokens: int) -> None:
        super().__init__(url, clients, tokens)
        self._asked_s, self._asked = 0.0, threading.Barrier(clients, action=self._begin)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._asked.abort()
        super().__exit__()

    def wait_for(self, server: Server, seconds: float) -> None:
        """Until a batch is being decoded that will be for so long."""
        end_s = time.monotonic() + LONGEST_WAVE_S
        while time.monotonic() < end_s:
            wave = self.waves
            first = server.look()
            time.sleep(PROMPTS_S)
            second = server.look()
            rate = (second.tokens - first.tokens) / (second.at_s - first.at_s)
            if not wave or wave != self.waves or rate <= 0:
                continue
            left_s = self._tokens * self._clients / rate - (time.perf_counter() - self._asked_s)
            if left_s > seconds:
                return
        sys.exit(f"no batch was decoded for {seconds:g} s: answers may be longer (--tokens), windows shorter")

    def _length(self, chance: random.Random) -> int:
        try:
            self._asked.wait()
        except threading.BrokenBarrierError:
            return 1
        return self._tokens

    def _begin(self) -> None:
        self.waves += 1
        self._asked_s = time.perf_counter()


class Server:
    """A server that runs here.

    Args:
        url: Of its HTTP side.
        pid: Any process of it.
    """

    def __init__(self, url: str, pid: int) -> None:
        self.url, self.pid = url, pid
        target = find_target(pid)
        self._pids = {target.root_pid, *(one.pid for one in target.processes)}
        self._pids |= set(procfs.family().descendants(target.root_pid))

    def look(self) -> Look:
        """Its counters now."""
        asked_s = time.perf_counter()
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        answered_s = time.perf_counter()
        tokens, steps = (sum(map(float, names.findall(page))) for names in (_TOKENS, _STEPS))
        return Look((asked_s + answered_s) / 2, tokens, steps, answered_s, self._cpu_ns())

    def _cpu_ns(self) -> int:
        """What its processes have run so far, threads that have ended included."""
        ran = 0
        for pid in self._pids:
            try:
                ran += time.clock_gettime_ns(cpu_clock(pid))
            except OSError:  # a helper of the server's that has ended
                continue
        return ran

    def window(self, seconds: float) -> Window:
        """Look at it for a while, once a second and at both ends."""
        looks = [self.look()]
        end_s = looks[0].at_s + seconds
        while (left_s := end_s - time.perf_counter()) > 0:
            time.sleep(left_s if left_s < 1.5 * CELL_S else CELL_S)
            looks.append(self.look())
        return Window.of(looks)

    def watched(self, mode: str, options: argparse.Namespace) -> tuple[Window | None, Window, tuple[float, float]]:
        """Its first window and the one after with llmtop attached; what that and its helpers took of a core then."""
        if mode == NONE:
            first = self.window(options.settle) if options.settle else None
            return first, self.window(options.window), (0.0, 0.0)
        command = [*LLMTOP, "--attach", str(self.pid), "--probes", mode, "--interval", f"{options.interval:g}"]
        with TimedTerminal(command) as terminal:
            first = self.window(options.settle) if options.settle else None
            before = Use.of(terminal.pid)
            after = self.window(options.window)
            terminal.check_running()
            use = Use.of(terminal.pid)
            terminal.signal(signal.SIGTERM)
            terminal.wait_exit()
        spent_s = use.own_s - before.own_s, use.children_s - before.children_s
        return first, after, (spent_s[0] / options.window, spent_s[1] / options.window)


def cpu_clock(pid: int) -> int:
    """The clock of a process's CPU time, in nanoseconds: clock_getcpuclockid(3), which Python has not."""
    return ~pid << 3 | 2


@contextmanager
def the_server(options: argparse.Namespace) -> Iterator[Server]:
    """The server that was named, or the demo's."""
    if not options.demo:
        yield Server(options.url.rstrip("/"), options.pid)
        return
    with DemoServer("--device", "cpu") as demo:
        yield Server(demo.url, demo.pid)


def turns(server: Server, load: Load, options: argparse.Namespace) -> Iterator[tuple[str, Turn]]:
    """Have llmtop come and go until the time is over, each time with the probes of the next mode."""
    end_s = time.monotonic() + options.minutes * 60
    half_s = options.window / 2
    waiting: list[str] = []
    while time.monotonic() < end_s:
        waiting = waiting or random.sample(options.modes, len(options.modes))
        mode = waiting.pop()
        load.wait_for(server, 2 * half_s + options.settle + options.window + 2 * COMES_AND_GOES_S)
        wave, before = load.waves, server.window(half_s)
        if before.tokens_per_s <= 0:
            sys.exit("the server made no tokens: is it the one of this URL, and does /metrics count them?")
        first, after, shares = server.watched(mode, options)
        time.sleep(REST_S)
        turn = Turn(before, first, after, server.window(half_s), *shares)
        if load.waves == wave:
            yield mode, turn


def signed_rank_counts(pairs: int) -> list[int]:
    """In how many of the 2^pairs ways of signs the positive ranks add up to 0, 1, 2 ...

    >>> signed_rank_counts(3)
    [1, 1, 1, 2, 1, 1, 1]
    """
    counts = [1]
    for rank in range(1, pairs + 1):
        counts = [
            (counts[i] if i < len(counts) else 0) + (counts[i - rank] if i >= rank else 0)
            for i in range(len(counts) + rank)
        ]
    return counts


def shift(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """The Hodges-Lehmann estimate of where values lie, what that is over and what it is under.

    Each bound holds with this confidence by itself (Wilcoxon's signed-rank test, exact); infinite where there are too
    few values for it, which are fewer than five for 95 %.

    >>> shift([1.0, 2.0, 3.0, 4.0, 5.0, 60.0])
    (3.5, 2.0, 32.0)
    """
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    chance, passed, total = 0.0, -1, 2.0 ** len(values)
    for count in signed_rank_counts(len(values)):
        chance += count / total
        if chance > 1 - confidence:
            break
        passed += 1
    bounds = (means[passed], means[-1 - passed]) if passed >= 0 else (-math.inf, math.inf)
    return statistics.median(means), *bounds


def minutes_needed(spent: float, loss: float, least: float, most: float) -> str:
    """How long until the upper bound is within the budget, if it goes on as it did: bounds shrink as 1/sqrt(n).

    "never" where the loss is surely beyond it, "more" where that cannot be told yet.

    >>> minutes_needed(4.0, 0.002, -0.01, 0.018), minutes_needed(4.0, 0.03, 0.02, 0.04)
    ('16', 'never')
    >>> minutes_needed(4.0, 0.02, -0.03, 0.07), minutes_needed(4.0, 0.001, -math.inf, math.inf)
    ('more', 'more')
    """
    if least > BUDGET:
        return "never"
    if loss >= BUDGET or math.isinf(most):
        return "more"
    return f"{max(0.5, spent * ((most - loss) / (BUDGET - loss)) ** 2):.2g}"


def losses_by_window(seen: Sequence[Turn], settle_s: float) -> dict[str, Losses]:
    """The losses of llmtop's first seconds, of what came after, and of the first minute."""
    found = {"first": Losses(), "after": Losses()}
    for turn in seen:
        found["after"].add(turn.after, turn)
        if turn.first:
            found["first"].add(turn.first, turn)
    if not found["first"].tokens:
        return {"whole": found["after"]}
    return found | {"minute": _minute(found["first"], found["after"], min(1.0, settle_s / 60))}


def _minute(first: Losses, after: Losses, share: float) -> Losses:
    def mixed(a: Sequence[float], b: Sequence[float]) -> list[float]:
        return [share * x + (1 - share) * y for x, y in zip(a, b, strict=True)]

    return Losses(mixed(first.tokens, after.tokens), mixed(first.steps, after.steps), mixed(first.cpu, after.cpu))


def report(by_mode: dict[str, list[Turn]], settle_s: float, minutes: float) -> int:
    """Print a table a mode; 1 where even the least loss that fits is beyond the budget."""
    rows: list[tuple[str, ...]] = []
    worst = 0
    for mode, seen in by_mode.items():
        for window, lost in losses_by_window(seen, settle_s).items():
            loss, least, most = shift(lost.tokens)
            verdict = "within" if most < BUDGET else "beyond" if least > BUDGET else "not told apart"
            worst |= mode != NONE and least > BUDGET
            quiet = statistics.fmean(one.tokens_per_s for turn in seen for one in (turn.before, turn.behind))
            rows.append(
                (
                    f"{mode}: {window}",
                    str(len(lost.tokens)),
                    f"{loss:+.2%}",
                    _percent(least),
                    _percent(most),
                    verdict,
                    _bounds(lost.steps),
                    _bounds(lost.cpu),
                    f"{statistics.fmean(lost.tokens):+.2%}, {max(lost.tokens):+.1%}",
                    _worst_second(seen, window, quiet),
                    " + ".join(f"{statistics.fmean(share):.1%}" for share in zip(*map(_shares, seen), strict=True)),
                    minutes_needed(minutes, loss, least, most),
                )
            )
    head = ("probes: window", "n", "tokens lost", "at least", "at most", "1 %", "steps lost", "CPU per token")
    print(
        table(
            (*head, "mean, worst window", "worst second (without)", "llmtop + helpers, of a core", "minutes for 1 %"),
            rows,
        )
    )
    return worst


def _shares(turn: Turn) -> tuple[float, float]:
    return turn.own, turn.helpers


def _percent(share: float) -> str:
    return f"{share:+.2%}" if math.isfinite(share) else "?"


def _bounds(values: Sequence[float]) -> str:
    if not values:
        return "–"
    middle, least, most = shift(values)
    return f"{middle:+.2%} ({_percent(least)} to {_percent(most)})"


def _worst_second(seen: Sequence[Turn], window: str, quiet: float) -> str:
    """Of the seconds with llmtop, and of those without."""
    watched = [turn.first if window == "first" else turn.after for turn in seen]
    if window == "minute":
        return "–"
    least = min(one.worst for one in watched if one)
    least_quiet = min(one.worst for turn in seen for one in (turn.before, turn.behind))
    return f"{1 - least / quiet:+.0%} ({1 - least_quiet / quiet:+.0%})"


def measure(server: Server, load: Load, options: argparse.Namespace) -> dict[str, list[Turn]]:
    """All that fits into the time, or until Ctrl+C or SIGTERM."""
    by_mode: dict[str, list[Turn]] = {mode: [] for mode in options.modes}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for mode, turn in turns(server, load, options):
            by_mode[mode].append(turn)
            quiet = (turn.before.tokens_per_s + turn.behind.tokens_per_s) / 2
            lost = Losses()
            for window in filter(None, (turn.first, turn.after)):
                lost.add(window, turn)
            print(
                f"{mode:5} {quiet:8.1f} tokens/s without; lost: {' '.join(f'{one:+6.1%}' for one in lost.tokens)}; "
                f"{turn.after.cpu_us:.0f} us a token",
                flush=True,
            )
    except KeyboardInterrupt:
        print("interrupted: this is what there is so far")
    return {mode: seen for mode, seen in by_mode.items() if seen}


def _modes(text: str) -> list[str]:
    modes = text.split(",")
    if unknown := set(modes) - set(MODES):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not one of {', '.join(MODES)}")
    return modes


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of the server's HTTP side")
    parser.add_argument("--pid", type=int, help="any process of the server")
    parser.add_argument("--demo", action="store_true", help="the demo server instead")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--together", action="store_true", help="all ask at once, for answers of one length")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer, on average")
    parser.add_argument("--modes", type=_modes, default=["full"], help=f"some of {','.join(MODES)}; full alone if none")
    parser.add_argument(
        "--window", type=float, default=5.0, help="seconds of a window, and of what it is compared with"
    )
    parser.add_argument("--interval", type=float, default=0.5, help="llmtop's, in seconds")
    parser.add_argument("--settle", type=float, default=4.0, help="seconds from llmtop's start that are told apart")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all of it")
    parser.add_argument("--warm-up", type=float, default=6.0, help="seconds from the clients' start that do not count")
    options = parser.parse_args()
    if not options.demo and not (options.url and options.pid):
        parser.error("either --demo, or --url and --pid")
    print(machine())
    print(
        f"{options.clients} clients, answers of about {options.tokens} tokens, windows of {options.window:g} s, "
        f"the first {options.settle:g} s of llmtop apart, llmtop at {1 / options.interval:g} Hz"
    )
    kind = Waves if options.together else Load
    with the_server(options) as server, kind(server.url, options.clients, options.tokens) as load:
        time.sleep(options.warm_up)
        start_s = time.monotonic()
        by_mode = measure(server, load, options)
        return report(by_mode, options.settle, (time.monotonic() - start_s) / 60)


if __name__ == "__main__":
    raise SystemExit(main())
