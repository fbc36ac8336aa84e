"""What llmtop says of programs, against what these say of themselves over the same time.

From the probes through the collectors and the recorder to the view that the panes draw. Other programs may take CPU
time from the workloads at any moment: their own accounts hold that too. What is waited for a CPU is only counted when
it is over, so where much else runs the clocks at a window's ends say nothing of the last wait: such a look is repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.series.readings import latest
from llmtop.demo.limits import cpu_quota, slow_disk, why_no_quota, why_no_slow_disk
from llmtop.vocabulary import ThreadCause
from tests.workloads.noise import Looks, measured_again, no_others_first, put_first
from tests.workloads.programs import HERE as WORKLOADS
from tests.workloads.programs import Workload
from tests.workloads.watching import Seen, watching

pytestmark = pytest.mark.usefixtures("kernel_probes")
FIVE_POINTS = 0.05
WINDOW_S = 2.0


@dataclass(frozen=True)
class HeldBack:
    """A program with a CPU quota and one with a slow disk; how often the first was throttled, or why never."""

    seen: Seen
    throttled: int | str
    no_slow_disk: str


@contextmanager
def running(commands: dict[str, tuple[str | Path, ...]]) -> Iterator[dict[str, Workload]]:
    with ExitStack() as programs:
        yield {name: programs.enter_context(Workload(*command)) for name, command in commands.items()}


def looks_at(commands: dict[str, tuple[str | Path, ...]]) -> Looks[Seen]:
    def look(times: int) -> Seen:
        with no_others_first(), running(commands) as programs, watching(programs) as watch:
            return watch.record(times * WINDOW_S)

    return Looks(look)


@pytest.fixture(scope="module")
def sleepers(kernel_probes: None, workload: Path) -> Looks[Seen]:
    modes = ("nanosleep", "futex", "pipe", "network", "epoll")
    return looks_at({mode: (workload, mode, "0") for mode in modes})


@pytest.fixture(scope="module")
def spinners(kernel_probes: None, workload: Path, cuda_program: Path) -> Looks[Seen]:
    """Apart from those that sleep: they would take a CPU from these for tenths of a second."""
    return looks_at({"poll": (workload, "poll", "0"), "spinning": (cuda_program, "spinning", "0")})


@pytest.fixture(scope="module")
def cuda(kernel_probes: None, cuda_program: Path) -> Looks[Seen]:
    modes = ("plain", "stuck", "late")
    return looks_at({mode: (cuda_program, mode, "0") for mode in modes})


def assert_agrees(seen: Seen, program: str, thread: str, cause: ThreadCause | None) -> None:
    truth = seen.after[program].shares(seen.before[program])[thread]
    said = seen.shares(program, thread)
    assert said.on_cpu == pytest.approx(truth.on_cpu, abs=FIVE_POINTS)
    assert said.run_queue == pytest.approx(truth.queued, abs=FIVE_POINTS)
    blocked = dict(said.blocked)
    assert said.are_causes_exact or cause is None
    if cause is not None:
        assert blocked.pop(cause, 0.0) == pytest.approx(truth.waited, abs=FIVE_POINTS)
    assert sum(blocked.values()) < FIVE_POINTS


@pytest.mark.parametrize(
    ("mode", "thread", "cause"),
    [
        ("nanosleep", "worker", ThreadCause.NANOSLEEP),
        ("futex", "worker", ThreadCause.FUTEX),
        ("futex", "partner", ThreadCause.FUTEX),
        ("pipe", "worker", ThreadCause.PIPE),
        ("pipe", "partner", ThreadCause.PIPE),
        ("network", "worker", ThreadCause.SOCKET),
        ("network", "partner", ThreadCause.SOCKET),
        ("epoll", "worker", ThreadCause.EPOLL),
        ("epoll", "partner", ThreadCause.NANOSLEEP),
    ],
)
@measured_again
def test_shares_of_one_that_waits(sleepers: Seen, mode: str, thread: str, cause: ThreadCause) -> None:
    assert_agrees(sleepers, mode, thread, cause)


@pytest.mark.parametrize(
    ("mode", "thread", "cause", "function"),
    [
        ("nanosleep", "worker", ThreadCause.NANOSLEEP, "sleep_here"),
        ("futex", "worker", ThreadCause.FUTEX, "wait_for_turn"),
        ("futex", "partner", ThreadCause.FUTEX, "wait_for_turn"),
        ("pipe", "partner", ThreadCause.PIPE, "wait_for_byte"),
        ("network", "worker", ThreadCause.SOCKET, "wait_for_byte"),
        ("epoll", "worker", ThreadCause.EPOLL, "wait_for_event"),
    ],
)
@measured_again
def test_stacks_name_the_function_that_waits(
    sleepers: Seen, mode: str, thread: str, cause: ThreadCause, function: str
) -> None:
    assert sleepers.stack_share(mode, thread, cause, function) > 1 - FIVE_POINTS


@pytest.mark.parametrize(("mode", "other"), [("futex", "partner"), ("pipe", "partner"), ("epoll", "partner")])
@measured_again
def test_the_partner_is_the_waker(sleepers: Seen, mode: str, other: str) -> None:
    """Its wake-ups reach a thread on another CPU by an interrupt there."""
    tids = {name: one["tid"] for name, one in sleepers.after[mode].threads.items()}
    track = ids.thread(sleepers.pids[mode], tids["worker"])
    wakes = {
        name.rpartition("|")[2]: sleepers.counted(mode, track, v.labelled(v.THREAD_WAKES, name.rpartition("|")[2]))
        for of, name in sleepers.trace.series
        if of == track and name.startswith(v.THREAD_WAKES.name)
    }
    assert sum(wakes.values()) >= 5
    assert wakes[str(tids[other])] >= 0.95 * sum(wakes.values())


@measured_again
def test_poll_that_does_not_wait_is_counted_by_thread_and_is_polling(spinners: Seen) -> None:
    assert_polls(spinners, "poll", "poll")


def assert_polls(seen: Seen, mode: str, kind: str) -> None:
    truth = seen.after[mode].grown("worker", "spins", seen.before[mode])
    pid = seen.pids[mode]
    counted = seen.counted(mode, ids.thread(pid, pid), v.labelled(v.THREAD_SPINS, kind))
    assert counted == pytest.approx(truth, rel=0.15)  # the window's edges are reports, 0.1 s apart
    assert_agrees(seen, mode, "worker", None)
    said = seen.shares(mode, "worker")
    assert said.polling is not None
    # Every two seconds are polling as a whole or not at all, and the window has one and a half of these.
    assert 0.3 * said.on_cpu <= said.polling <= said.on_cpu


@pytest.mark.parametrize("mode", ["plain", "stuck"])
@measured_again
def test_sleep_in_a_synchronisation_is_put_down_to_it(cuda: Seen, mode: str) -> None:
    assert_agrees(cuda, mode, "worker", ThreadCause.CUDA_SYNC)
    truth = cuda.after[mode].shares(cuda.before[mode])["worker"]
    assert cuda.shares(mode, "worker").in_cuda_sync == pytest.approx(truth.in_sync, abs=FIVE_POINTS)


@measured_again
def test_spinning_until_the_gpu_has_finished_is_on_the_cpu_and_a_wait(spinners: Seen) -> None:
    assert_agrees(spinners, "spinning", "worker", None)
    truth = spinners.after["spinning"].shares(spinners.before["spinning"])["worker"]
    said = spinners.shares("spinning", "worker")
    assert said.in_cuda_sync == pytest.approx(truth.in_sync, abs=FIVE_POINTS)
    assert said.blocked_total < FIVE_POINTS


@measured_again
def test_a_late_rank_keeps_the_other_in_synchronisation(cuda: Seen) -> None:
    assert_agrees(cuda, "late", "rank 0", ThreadCause.CUDA_SYNC)
    truth = cuda.after["late"].shares(cuda.before["late"])["rank 0"]
    assert cuda.shares("late", "rank 0").in_cuda_sync == pytest.approx(truth.in_sync, abs=FIVE_POINTS)
    assert truth.in_sync > 0.5, "or the workload is not what it says"


@pytest.mark.parametrize("mode", ["plain", "late"])
@measured_again
def test_launches_are_counted_by_thread_once(cuda: Seen, mode: str) -> None:
    pid = cuda.pids[mode]
    (thread,) = cuda.after[mode].threads
    truth = cuda.after[mode].grown(thread, "launches", cuda.before[mode])
    assert cuda.counted(mode, ids.thread(pid, pid), v.THREAD_LAUNCHES) == pytest.approx(truth, rel=0.15)


@pytest.fixture
def fighting(kernel_probes: None) -> Looks[Seen]:
    return looks_at({"fight": (sys.executable, WORKLOADS / "gil_fight.py")})


@measured_again
def test_threads_that_fight_for_the_gil_wait_on_a_futex(fighting: Seen) -> None:
    pid = fighting.pids["fight"]
    for rival in fighting.after["fight"].threads:
        truth = fighting.after["fight"].shares(fighting.before["fight"])[rival]
        said = fighting.shares("fight", rival)
        assert said.on_cpu == pytest.approx(truth.on_cpu, abs=FIVE_POINTS)
        assert dict(said.blocked)[ThreadCause.FUTEX] == pytest.approx(said.blocked_total, abs=FIVE_POINTS)
    waits = fighting.counted("fight", ids.process(pid), v.PROCESS_GIL_WAITS)
    # 5 ms each; on a machine that is busy otherwise most take longer than that, as the thread queues for a CPU.
    assert waits > 3e-9 * (fighting.after["fight"].t - fighting.before["fight"].t)


@pytest.fixture(scope="module")
def held_back(kernel_probes: None, workload: Path, tmp_path_factory: pytest.TempPathFactory) -> Looks[HeldBack]:
    """Where both can be done."""
    folder = tmp_path_factory.mktemp("held back")
    no_quota, no_slow_disk = why_no_quota(), why_no_slow_disk(folder)

    def look(times: int) -> HeldBack:
        commands = {"spin": (workload, "spin", "0"), "disk": (workload, "disk", "0", folder / "file")}
        with ExitStack() as stack:
            programs = stack.enter_context(running(commands))
            spin, disk = (programs[name].pid for name in commands)
            group = None if no_quota else stack.enter_context(cpu_quota(0.1, spin))
            if not no_slow_disk:
                stack.enter_context(slow_disk(folder, 8 << 20, disk))
            watch = stack.enter_context(watching(programs))
            put_first([disk], priority=1)  # or it would wait for a CPU in place of the disk
            seen = watch.record(times * WINDOW_S)
            stat = group and dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
            return HeldBack(seen, int(stat["nr_throttled"]) if stat else no_quota, no_slow_disk)

    return Looks(look)


@measured_again
def test_a_cpu_quota_is_time_in_the_queue_and_throttling_and_work_is_no_polling(held_back: HeldBack) -> None:
    if isinstance(held_back.throttled, str):
        pytest.skip(f"needs a cgroup with a CPU quota: {held_back.throttled}")
    seen = held_back.seen
    assert_agrees(seen, "spin", "worker", None)
    said = seen.shares("spin", "worker")
    assert said.on_cpu < 0.1 + FIVE_POINTS
    assert said.polling == 0
    assert seen.stack_share("spin", "worker", "on-cpu", "spin_here") > 0.9
    throttled = latest(seen.trace, ids.process(seen.pids["spin"]), v.CGROUP_PERIODS_THROTTLED)
    assert throttled == pytest.approx(held_back.throttled, abs=10)  # a second's


@measured_again
def test_waiting_for_a_disk_is_told_as_that(held_back: HeldBack) -> None:
    if held_back.no_slow_disk:
        pytest.skip(f"the disk cannot be made slow enough to wait for: {held_back.no_slow_disk}")
    seen = held_back.seen
    truth = seen.after["disk"].shares(seen.before["disk"])["worker"]
    if truth.queued > 0.5:
        pytest.skip(f"the program hardly got a CPU to write from: {truth.queued:.0%} of the time in the run queue")
    assert truth.waited > 0.3, "32 writes a second, 30 ms each"
    said = seen.shares("disk", "worker")
    assert said.on_cpu == pytest.approx(truth.on_cpu, abs=FIVE_POINTS)
    assert dict(said.blocked)[ThreadCause.DISK] == pytest.approx(truth.waited, abs=FIVE_POINTS)
