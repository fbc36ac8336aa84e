"""The program that bpftrace runs: what it counts is what collectors/tracing/bcc/programs counts.

It is written for bpftrace 0.17 and has to run on what came since, which rules some things out: raw tracepoints (0.17
does not know those of system calls), deleting from a map that is printed (until 0.18 bpftrace ends when an entry is
gone as it comes to it: such entries are set to 0), variables that are first set within a block (0.22), keys and tuples
of mixed integer types (0.22: hence the casts), and deleting an entry that is not there (0.23 complains of each).

Counters of the kinds `count`, `sum` and `hist` have a value for each CPU, so that none is lost to another CPU. But
newer releases (0.23; not 0.17) make an entry only where there is none: of CPUs that come to a new one at the same
moment, all but one lose what they add (helper_error -17, EEXIST). So what must be exact is made with a 0 first, which
may get lost. A histogram cannot be: counts are kept beside it.

Times are kept in units of 256 ns in histograms, so that the power-of-two buckets of `hist` are the slots of
programs/common.h; bpftrace before 0.20 keeps only 32 bits of what it is given.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from llmtop.collectors.tracing.helper.functions import COLLECTOR, FEWEST_POLLS, LOST_CPU_NS, NOT_READY, POLL_GAP_NS
from llmtop.collectors.tracing.helper.governor import HERTZ
from llmtop.collectors.tracing.helper.syscall_numbers import TRAPS, call_numbers

STATE_SHIFT, SYNC_SHIFT, FILE_SHIFT = 16, 24, 32
"""A place where a thread sleeps is one number: system call, state, whether within a CUDA synchronisation, file."""
_FIRST_MS, _STACKS_MS = 100, 2000
"""When the first report comes, and how often stacks do."""
PRINTED = 300
"""Stacks of one kind in one look, the heaviest; each is named anew by bpftrace when it is printed."""
_SAFE_PATH = re.compile(r"[\w./+@=-]+\Z", re.ASCII)
_SAFE_SYMBOL = re.compile(r"\w+\Z", re.ASCII)


_TIMEOUTS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
"""In which argument polls have their timeout in milliseconds; ppoll points to one."""
_ON_FILES = ("ioctl", "read", "write", "pread64", "pwrite64", "readv", "writev")
"""System calls whose first argument is a file that tells what is waited for."""


@dataclass(frozen=True)
class Function:
    """A library function to look at: where it is, and its number in what is printed.

    Attributes:
        path: By which bpftrace finds the file when it starts. Another one to the same file is no other function.
        file: Its device and inode.
        launches: It starts kernels: told by thread.
        waits: It waits for the GPU: told by thread, and sleeps within it are put down to it.
        begins, ends: Where it does so in bpftrace's words, where that is not the symbol and its return.
        asks: It asks whether the GPU has finished: a wait, where it is asked again and again until it has.
    """

    path: str = field(compare=False)
    symbol: str
    number: int
    launches: bool = False
    waits: bool = False
    file: tuple[int, int] = (0, 0)
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    asks: bool = False

    @property
    def can_be_written(self) -> bool:
        """Whether its names mean nothing in bpftrace's language."""
        return bool(_SAFE_PATH.match(self.path) and (self.begins or _SAFE_SYMBOL.match(self.symbol)))

    @property
    def collects(self) -> bool:
        """Whether it is Python's garbage collector: told by thread, beside what it launches and waits for meanwhile."""
        return self.symbol == COLLECTOR

    @property
    def is_told_by_thread(self) -> bool:
        """Whether its time is kept by thread too."""
        return self.launches or self.waits or self.asks or self.collects


def collector_probes(path: str, symbols: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where Python's collector begins and ends: by its functions, else by probes of the interpreter."""
    names = tuple(symbols)
    if not names:
        return (f"usdt:{path}:python:gc__start",), (f"usdt:{path}:python:gc__done",)
    return tuple(f"uprobe:{path}:{one}" for one in names), tuple(f"uretprobe:{path}:{one}" for one in names)


@dataclass(frozen=True)
class RunPlan:
    """What one run of bpftrace looks at; another plan is another run.

    Attributes:
        calls: "timed", "counted" or "off".
        stack_every: One sleep in so many has its stack taken; 0 for none.
        samples: Whether the stacks of what runs are taken.
        named: Whether bpftrace may give the functions of programs their names.
        loses_first: Whether this bpftrace may lose what CPUs add to an entry that is new.
    """

    pids: tuple[int, ...]
    calls: str
    scheduler: bool
    stack_every: int
    samples: bool
    functions: tuple[Function, ...]
    interval_ms: int
    named: bool
    loses_first: bool

    @property
    def first_ms(self) -> int:
        """When the first report comes, which tells that all is attached: there is no need to wait long for that."""
        return min(_FIRST_MS, self.interval_ms // 2)

    @property
    def polls(self) -> bool:
        """Whether threads are seen that wait for the GPU by asking it."""
        return any(one.asks for one in self.functions)

    @property
    def stacks(self) -> bool:
        """Whether sleeps have stacks."""
        return self.scheduler and self.stack_every > 0


def script(plan: RunPlan, machine: str = platform.machine()) -> str:
    """The program in bpftrace's language."""
    parts = [_begin(plan), _LIFECYCLE]
    parts += _call_probes(plan, machine)
    if plan.scheduler:
        parts.append(_scheduler(plan))
    parts += [_function(function, plan) for function in plan.functions]
    if plan.samples:
        parts.append(_SAMPLES.replace("HERTZ", str(HERTZ)))
    return "\n".join([*parts, _reports(plan)])  # intervals last: when one fires, all else is attached


def _begin(plan: RunPlan) -> str:
    """The first processes to follow; and maps that are read before they are written, so that their types are known."""
    targets = " ".join(f"@target[(uint64){pid}] = 1;" for pid in plan.pids)
    zero = "(uint64)0"
    types = f" @known[{zero}] = {zero}; @call[{zero}] = ({zero}, {zero}, {zero});"
    if plan.scheduler:
        types += f" @woken[{zero}] = {zero}; @off[{zero}] = ({zero}, {zero}, {zero}, {zero});"
    if plan.functions:
        types += f" @entered[{zero}, {zero}, {zero}] = {zero}; @outermost[{zero}] = {zero}; @syncing[{zero}] = 0;"
    if plan.polls:
        types += f" @polled[{zero}] = ({zero}, {zero}, {zero}, {zero}); @asked[{zero}] = {zero};"
    return f"BEGIN {{ {targets}{types} }}"


# A new thread's id is put on the list too: it is never looked up as a process's, and only takes room until it ends.
# Threads end after their process is off the list; what they leave must go, because their ids are used again.
_LIFECYCLE = """
tracepoint:sched:sched_process_fork {
  if (@target[(uint64)pid]) {
    @target[(uint64)args->child_pid] = 1;
    @born[(uint64)args->child_pid] = 1;
  }
}
tracepoint:sched:sched_process_exec {
  if (@target[(uint64)pid]) { @renewed[(uint64)pid] = 1; }
}
tracepoint:sched:sched_process_exit {
  if (@target[(uint64)pid] || @known[(uint64)tid]) { @ended[(uint64)tid] = (uint64)pid; }
  if (@known[(uint64)tid]) { delete(@known[(uint64)tid]); }
  if (@call[(uint64)tid].1) { delete(@call[(uint64)tid]); }
  if (@target[(uint64)tid]) { delete(@target[(uint64)tid]); }
}"""


def _call_probes(plan: RunPlan, machine: str) -> list[str]:
    numbers, traps = call_numbers(machine), TRAPS.get(machine, {})
    own = f" /{' && '.join(f'args->id != {number}' for number in traps.values())}/" if traps else ""
    ranges = _ranges(numbers[name] for name in _ON_FILES)
    files = " || ".join(f"($call >= {first} && $call <= {last})" for first, last in ranges)
    if plan.calls == "counted":
        counted = _COUNTED.replace("COUNT", _added(plan, "@calls[(uint64)pid, $call]"))
        return [counted.replace("FILES", files).replace(" OWN", own)]
    if plan.calls == "off":
        return []
    polls = " ".join(
        f"if ($call == {numbers[name]} && (args->args[{place}] & 0xffffffff) == 0) {{ $spins = (uint64)1; }}"
        for name, place in _TIMEOUTS.items()
        if name in numbers
    )
    timed = _TIMED.replace("FILES", files).replace(" OWN", own).replace("POLLS", polls)
    timed = timed.replace("YIELD", str(numbers["sched_yield"])).replace("PPOLL", str(numbers["ppoll"]))
    timed = timed.replace("FUTEX", str(numbers["futex"]))
    apart = f"\n    {_added(plan, '@calls[(uint64)pid, $call]')}" if plan.loses_first else ""
    timed = timed.replace("ERROR", _added(plan, "@errors[(uint64)pid, $call]"))
    return [timed.replace("TIMEOUT", _added(plan, "@switch_timeouts[(uint64)pid]")).replace("COUNT", apart)]


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of those that follow each other.

    >>> _ranges([16, 1, 0, 2, 17, 20])
    [(0, 2), (16, 17), (20, 20)]
    """
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        follows = bool(found) and number == found[-1][1] + 1
        found[-1:] = [(found[-1][0], number)] if follows else [*found[-1:], (number, number)]
    return found


def _added(plan: RunPlan, counter: str, amount: str = "(uint64)1") -> str:
    """What adds to a counter that several CPUs may come to at once; else `count` will do."""
    if plan.loses_first:
        return f"{counter} = sum((uint64)0); {counter} = sum({amount});"
    return f"{counter} = count();" if amount == "(uint64)1" else f"{counter} = sum({amount});"


_COUNTED = """
tracepoint:raw_syscalls:sys_enter OWN {
  if (@target[(uint64)pid]) {
    $call = (uint64)args->id;
    $file = (uint64)0;
    if (FILES) { $file = (uint64)args->args[0]; }
    COUNT
    @call[(uint64)tid] = ((uint64)1, $call + (uint64)1, $file);
  } else { @foreign_calls = count(); }
}"""
_TIMED = """
tracepoint:raw_syscalls:sys_enter OWN {
  if (@target[(uint64)pid]) {
    $call = (uint64)args->id;
    $spins = (uint64)0;
    $file = (uint64)0;
    if ($call == YIELD) { $spins = (uint64)1; }
    POLLS
    if ($call == PPOLL && args->args[2] != 0) {
      if (*(uint64 *)uptr(args->args[2]) == 0 && *(uint64 *)uptr(args->args[2] + 8) == 0) { $spins = (uint64)1; }
    }
    if (FILES) { $file = (uint64)args->args[0]; }
    if ($spins) { @spins[(uint64)pid, (uint64)tid, $call] = count(); }
    if ($spins == 0) { @call[(uint64)tid] = (nsecs, $call + (uint64)1, $file); }
  } else { @foreign_calls = count(); }
}
tracepoint:raw_syscalls:sys_exit {
  $entry = @call[(uint64)tid];
  if ($entry.0) {
    $ns = nsecs - $entry.0;
    $call = $entry.1 - (uint64)1;
    @latency[(uint64)pid, $call] = hist($ns >> 8);COUNT
    @time[(uint64)pid, $call] = sum($ns);
    if (args->ret < 0 && args->ret >= -4095) {
      ERROR
      if (args->ret == -110 && $call == FUTEX && $ns > 4500000 && $ns < 7000000) {
        TIMEOUT
      }
    }
    delete(@call[(uint64)tid]);
  }
}"""


# Who wakes a thread is told in the waker's context; `sched_wakeup` may come by an interrupt of the CPU it wakes on. One
# that comes while the thread is already let on its CPU finds it asleep all the same: that is not of its next sleep.
def _scheduler(plan: RunPlan) -> str:
    text = _SCHEDULER.replace("TAKE", _TAKE if plan.stacks else "").replace("WEIGH", _WEIGH if plan.stacks else "")
    some = f" && rand % {plan.stack_every} == 0" if plan.stack_every > 1 else ""
    sync = f" | ((uint64)(@syncing[(uint64)tid] > 0) << {SYNC_SHIFT})" if plan.functions else ""
    return text.replace("SOME", some).replace("SYNC", sync)


_TAKE = """
      if ($state != 0SOME) {
        $taken = (uint64)1;
        @user[(uint64)tid] = ustack;
        @kernel[(uint64)tid] = kstack;
      }"""
_WEIGH = """
      if ($off.3) {
        @sleep_stacks[$off.1, $next, $off.2, @user[$next], @kernel[$next]] = sum($woken - $off.0);
      }"""
_SCHEDULER = """
tracepoint:sched:sched_waking {
  $tid = (uint64)args->pid;
  $of = @known[$tid];
  if ($of) { @wakes[$of, $tid, (uint64)tid] = count(); }
}
tracepoint:sched:sched_wakeup {
  $tid = (uint64)args->pid;
  $off = @off[$tid];
  if (($off.2 >> 16) & 0xff) {
    if (@woken[$tid] < $off.0) { @woken[$tid] = nsecs; }
  }
}
tracepoint:sched:sched_switch {
  $now = nsecs;
  if (@target[(uint64)pid]) {
    $state = (uint64)args->prev_state & 0xff;
    $entry = @call[(uint64)tid];
    $call = (uint64)0xffff;
    $taken = (uint64)0;
    if ($entry.1) { $call = $entry.1 - (uint64)1; }
    if (($state & 0x30) == 0) {  // neither EXIT_DEAD nor EXIT_ZOMBIE
      @known[(uint64)tid] = (uint64)pid;TAKE
      @off[(uint64)tid] = ($now, (uint64)pid, $call | ($state << 16)SYNC | ($entry.2 << 32), $taken);
    }
  }
  $next = (uint64)args->next_pid;
  $off = @off[$next];
  if ($off.0) {
    $woken = $off.0;
    if (($off.2 >> 16) & 0xff) {
      $woken = @woken[$next];
      if ($woken) { @woken[$next] = (uint64)0; }
      if ($woken < $off.0) { $woken = $now; }
      @slept[$off.1, $next, $off.2] = sum($woken - $off.0);WEIGH
    }
    @queue[$off.1] = hist(($now - $woken) >> 8);
    @off[$next] = ((uint64)0, (uint64)0, (uint64)0, (uint64)0);
  }
}"""


def _function(function: Function, plan: RunPlan) -> str:
    """The probes on a function; one clause each, because a uretprobe does not know whose it is.

    The runtime's functions call the driver's: by thread, the outermost one counts.
    """
    place = f"{function.path}:{function.symbol}"
    begins, ends = (
        ",\n".join(one) for one in (function.begins or (f"uprobe:{place}",), function.ends or (f"uretprobe:{place}",))
    )
    by_thread = (
        _BY_THREAD if function.launches or function.waits else ("", _COLLECTING) if function.collects else ("", "")
    )
    enter, leave = (part.replace("FLAG", "1" if function.waits else "0") for part in by_thread)
    apart = f"\n    {_added(plan, '@library_count[(uint64)pid, NUMBER]')}" if plan.loses_first else ""
    text = (
        (_QUERY if function.asks else _FUNCTION)
        .replace("BEGINS", begins)
        .replace("ENDS", ends)
        .replace("ENTER", enter)
        .replace("LEAVE", leave)
        .replace("COUNT", apart)
    )
    return text.replace("NUMBER", f"(uint64){function.number}")


_BY_THREAD = (
    "if (@outermost[(uint64)tid] == 0) { @outermost[(uint64)tid] = NUMBER + (uint64)1; @syncing[(uint64)tid] = FLAG; }",
    """
    if (@outermost[(uint64)tid] == NUMBER + (uint64)1) {
      @library_time[(uint64)pid, (uint64)tid, NUMBER] = sum(nsecs - $since);
      @library_calls[(uint64)pid, (uint64)tid, NUMBER] = count();
      @outermost[(uint64)tid] = (uint64)0;
      @syncing[(uint64)tid] = 0;
    }""",
)
_COLLECTING = """
    @library_time[(uint64)pid, (uint64)tid, NUMBER] = sum(nsecs - $since);
    @library_calls[(uint64)pid, (uint64)tid, NUMBER] = count();"""
_FUNCTION = """
BEGINS {
  if (@target[(uint64)pid]) { @entered[(uint64)pid, (uint64)tid, NUMBER] = nsecs; ENTER }
}
ENDS {
  $since = @entered[(uint64)pid, (uint64)tid, NUMBER];
  if ($since) {
    @library[(uint64)pid, NUMBER] = hist((nsecs - $since) >> 8);COUNT
    @library_ns[(uint64)pid, NUMBER] = sum(nsecs - $since);
    @entered[(uint64)pid, (uint64)tid, NUMBER] = (uint64)0;LEAVE
  }
}"""

# As in programs/library.c: what only repeats a question counts as no call, and the last answer with the time of all.
_QUERY = f"""
BEGINS {{
  if (@target[(uint64)pid]) {{
    @entered[(uint64)pid, (uint64)tid, NUMBER] = nsecs;
    if (@outermost[(uint64)tid] == 0) {{ @outermost[(uint64)tid] = NUMBER + (uint64)1; @asked[(uint64)tid] = arg0; }}
  }}
}}
ENDS {{
  $since = @entered[(uint64)pid, (uint64)tid, NUMBER];
  if ($since) {{
    $now = nsecs;
    $ns = $now - $since;
    $polled = @polled[(uint64)tid];
    $handle = @asked[(uint64)tid];
    $ready = (uint64)1;
    $on = (uint64)0;
    $is_other = (uint64)0;
    $repeated = (uint64)0;
    $more = (uint64)0;
    $first = $since;
    $polls = (uint64)0;
    if ((retval & 0xffffffff) == {NOT_READY}) {{ $ready = (uint64)0; }}
    $last = $polled.1;
    if ($polled.2 > 0 && $since < $polled.1 + {POLL_GAP_NS}) {{
      if ($polled.3 == $handle) {{ $on = (uint64)1; }}
      if ($polled.3 != $handle) {{ $is_other = (uint64)1; }}
    }}
    if ($on == 0 && $polled.2 >= {FEWEST_POLLS} && $polled.3 == $handle && $since < $polled.1 + {LOST_CPU_NS}) {{
      $on = (uint64)1;
      $last = $since;
    }}
    if ($on) {{
      $first = $polled.0;
      $polls = $polled.2;
      if ($ready == 0) {{ $repeated = (uint64)1; }}
    }}
    if (@outermost[(uint64)tid] == NUMBER + (uint64)1) {{
      if ($is_other == 0) {{
        if ($polls >= {FEWEST_POLLS}) {{ $more = $now - $last; }}
        if ($polls == {FEWEST_POLLS - 1} && $ready == 0) {{ $more = $now - $first; }}
        if ($ready == 0) {{ @polled[(uint64)tid] = ($first, $now, $polls + (uint64)1, $handle); }}
        if ($ready && $polls) {{ @polled[(uint64)tid] = ((uint64)0, (uint64)0, (uint64)0, (uint64)0); }}
        if ($more) {{ @library_time[(uint64)pid, (uint64)tid, NUMBER] = sum($more); }}
        if ($ready && $polls >= {FEWEST_POLLS}) {{
          $ns = $now - $first;
          @library_calls[(uint64)pid, (uint64)tid, NUMBER] = count();
        }}
      }}
      @outermost[(uint64)tid] = (uint64)0;
    }}
    if ($repeated == 0) {{
      @library[(uint64)pid, NUMBER] = hist($ns >> 8);COUNT
      @library_ns[(uint64)pid, NUMBER] = sum($ns);
    }}
    @entered[(uint64)pid, (uint64)tid, NUMBER] = (uint64)0;LEAVE
  }}
}}"""


_SAMPLES = """
profile:hz:HERTZ {
  if (@target[(uint64)pid]) { @samples[(uint64)pid, (uint64)tid, ustack, kstack] = count(); }
}"""


def _reports(plan: RunPlan) -> str:
    """What is printed at every interval, and once more at the end. Sums come before the sleeps that go on."""
    news = ["born", "ended", "renewed"]
    sums = list(news)
    if plan.calls == "timed":
        sums += ["latency", "time", "errors", "spins", "switch_timeouts", "foreign_calls"]
        sums += ["calls"] if plan.loses_first else []
    if plan.calls == "counted":
        sums += ["calls", "foreign_calls"]
    if plan.functions:
        sums += ["library", "library_ns"] + (["library_count"] if plan.loses_first else [])
    if any(function.is_told_by_thread for function in plan.functions):
        sums += ["library_time", "library_calls"]
    if plan.scheduler:
        sums += ["slept", "queue", "wakes"]
    if plan.functions:
        sums.append("entered")
    if plan.scheduler:
        sums += ["off", "woken"]
    stacks = _stack_maps(plan)
    hidden = ["first", "turn", "target", "known", "call", "outermost", "syncing", "polled", "asked", "user", "kernel"]
    begin, end = 'printf("begin %llu\\n", nsecs);', 'printf("end\\n");'
    prints = "".join(f" print(@{name});" for name in sums)
    clears = "".join(f" clear(@{name});" for name in news)
    every = max(1, _STACKS_MS // plan.interval_ms)
    first = f"interval:ms:{plan.first_ms} {{ if (@first == 0) {{ @first = 1; {begin}{prints} {end} }} }}"
    regular = f"interval:ms:{plan.interval_ms} {{ @turn = @turn + 1; {begin}{prints}{clears}"
    regular += f"{_stack_prints(stacks, every)} {end} }}"
    # What is left at the end would be printed by bpftrace itself, names of stacks and all.
    forget = "".join(f" clear(@{name});" for name in (*hidden, *sums, *stacks) if _is_used(name, plan))
    return f"{first}\n{regular}\nEND {{ {begin}{prints} {end}{forget} }}"


def _stack_prints(names: list[str], every: int) -> str:
    """Stacks of one time in so many; the sums are cleared, the stacks of those asleep are not."""
    if not names:
        return ""
    sums = "".join(f" print(@{name}, {PRINTED}); clear(@{name});" for name in names)
    asleep = f" print(@user, {PRINTED}); print(@kernel, {PRINTED});" if "sleep_stacks" in names else ""
    return f' if (@turn % {every} == 0) {{ printf("stacks\\n");{sums}{asleep} }}'


def _stack_maps(plan: RunPlan) -> list[str]:
    return [*(["sleep_stacks"] if plan.stacks else []), *(["samples"] if plan.samples else [])]


def _is_used(name: str, plan: RunPlan) -> bool:
    """Whether the program has this map: bpftrace refuses to speak of one that is never written."""
    conditions = {
        "outermost": bool(plan.functions),
        "syncing": bool(plan.functions),
        "polled": plan.polls,
        "asked": plan.polls,
        "user": plan.stacks,
        "kernel": plan.stacks,
    }
    return conditions.get(name, True)
