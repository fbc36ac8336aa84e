"""What a system call, a kernel function, a file or a state says that a thread waits for, by their names."""

from __future__ import annotations

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmtop import procfs
from llmtop import vocabulary as v
from llmtop.collectors import consumers, loading
from llmtop.collectors.nvml.events import _OTHER_EVENTS
from llmtop.collectors.thread_causes import cause_of_file, cause_of_state, cause_of_syscall, cause_of_wchan, timed_futex
from llmtop.collectors.tracing.helper.syscall_numbers import syscall_names
from llmtop.model import Severity
from llmtop.vocabulary import ThreadCause

CALLS = {
    "futex": "futex futex_waitv futex_wait",
    "epoll": "epoll_wait epoll_pwait epoll_pwait2",
    "poll": "poll select pselect6 ppoll",
    "nanosleep": "nanosleep clock_nanosleep",
    "socket": "connect accept accept4 sendto recvfrom sendmsg recvmsg recvmmsg sendmmsg",
    "child": "wait4 waitid",
    "signal": "pause rt_sigtimedwait rt_sigsuspend",
    "io_uring": "io_uring_enter",
    "disk": "msync fsync fdatasync sync sync_file_range syncfs",
    "file": "read write ioctl pread64 pwrite64 readv writev",
}
NEWER = {"epoll_pwait2": 441, "futex_waitv": 449, "futex_wait": 455, "io_uring_enter": 426}
"""The same on all machines."""
AARCH64 = NEWER | {
    "futex": 98, "epoll_pwait": 22, "pselect6": 72, "ppoll": 73, "nanosleep": 101, "clock_nanosleep": 115,
    "accept": 202, "connect": 203, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212, "accept4": 242,
    "recvmmsg": 243, "sendmmsg": 269, "waitid": 95, "wait4": 260, "rt_sigsuspend": 133, "rt_sigtimedwait": 137,
    "sync": 81, "fsync": 82, "fdatasync": 83, "sync_file_range": 84, "msync": 227, "syncfs": 267, "ioctl": 29,
    "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "pwrite64": 68,
}  # fmt: skip
"""include/uapi/asm-generic/unistd.h."""
X86_64 = {
    "read": 0, "write": 1, "poll": 7, "ioctl": 16, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20,
    "select": 23, "msync": 26, "pause": 34, "nanosleep": 35, "connect": 42, "accept": 43, "sendto": 44, "recvfrom": 45,
    "sendmsg": 46, "recvmsg": 47, "wait4": 61, "fsync": 74, "fdatasync": 75, "rt_sigtimedwait": 128,
    "rt_sigsuspend": 130, "sync": 162, "futex": 202, "clock_nanosleep": 230, "epoll_wait": 232, "waitid": 247,
    "pselect6": 270, "ppoll": 271, "sync_file_range": 277, "epoll_pwait": 281, "accept4": 288, "recvmmsg": 299,
    "syncfs": 306, "sendmmsg": 307,
} | NEWER  # fmt: skip
"""arch/x86/entry/syscalls/syscall_64.tbl."""


@pytest.mark.parametrize(("machine", "numbers"), [("x86_64", X86_64), ("aarch64", AARCH64)])
def test_every_number_says_what_its_name_does(machine: str, numbers: dict[str, int]) -> None:
    causes = {name: cause for cause, names in CALLS.items() for name in names.split()}
    expected = {numbers[name]: cause for name, cause in causes.items() if name in numbers}
    expected = {number: "pipe" if cause == "file" else cause for number, cause in expected.items()}
    found = {}
    for number in range(600):
        cause = cause_of_syscall(f"{number} 0x5 0x0 0x7ffc 0x7f01", {5: "pipe:[1]"}.get, machine)
        if cause is not None:
            found[number] = cause.value
    assert found == expected
    assert cause_of_syscall("0 0x5 0x0", {5: "pipe:[1]"}.get, "s390x") is None


def test_numbers_are_those_of_the_calls() -> None:
    known = syscall_names()
    assert {number: name for name, number in X86_64.items() if number in known} == {
        number: known[number] for number in X86_64.values() if number in known
    }


@pytest.mark.parametrize("line", ["running", "-1 0x7ffc 0x7f01", "", "999 0x1"])
def test_what_is_no_call_that_waits_says_nothing(line: str) -> None:
    assert cause_of_syscall(line, lambda number: None, "x86_64") is None


@pytest.mark.parametrize(
    ("line", "machine", "address"),
    [
        ("202 0x10 0x89 0x0 0x7f 0x0", "x86_64", 16),
        ("202 0x10 0x89 0x0 0x0 0x0", "x86_64", None),
        ("202 0x10 0x89 0x0 0x7f", "x86_64", 16),
        ("202 0x10 0x89 0x0", "x86_64", None),
        ("98 0x10 0x89 0x0 0x7f", "x86_64", None),
        ("98 0x11 0x89 0x0 0x7f", "aarch64", 17),
        ("running", "x86_64", None),
        ("202 0x10 0x89 0x0 0x7f", "s390x", None),
    ],
)
def test_a_futex_with_a_time_limit(line: str, machine: str, address: int | None) -> None:
    assert timed_futex(line, machine) == address


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/dev/nvidia-uvm", "gpu_driver"), ("/dev/nvidiactl", "gpu_driver"), ("pipe:[9]", "pipe"),
        ("anon_inode:[eventfd]", "pipe"), ("anon_inode:[eventpoll]", "other"), ("socket:[1]", "socket"),
        ("/models/x", "disk"), ("/dev/pts/0", "other"), ("/proc/1/stat", "other"), ("/sys/x", "other"),
        ("/device", "disk"), ("", "other"), ("inotify", "other"),
    ],
)  # fmt: skip
def test_what_a_file_is_about(path: str, cause: str) -> None:
    assert cause_of_file(path).value == cause


def test_states_and_kernel_functions() -> None:
    states = {letter: cause.value for letter in "RSDTtZXIKW" if (cause := cause_of_state(letter))}
    assert states == {"R": "running", "T": "stopped", "t": "stopped", "Z": "exited", "X": "exited"}
    functions = {
        "futex_wait_queue_me": "futex", "__futex_wait": "futex", "ep_poll": "epoll", "do_sys_poll": "poll",
        "do_poll": "poll", "do_select": "poll", "hrtimer_nanosleep": "nanosleep",
        "do_nanosleep": "nanosleep",
        "common_nsleep": "nanosleep", "pipe_read": "pipe", "anon_pipe_read": "pipe", "eventfd_read": "pipe",
        "nvidia_poll": "gpu_driver", "_nv035rm": "gpu_driver", "uvm_ioctl": "gpu_driver",
        "os_acquire_mutex": "gpu_driver",
        "sk_wait_data": "socket", "unix_stream_read": "socket", "io_cqring_wait": "io_uring", "do_wait": "child",
        "do_sigtimedwait": "signal", "ptrace_stop": "stopped", "io_schedule": "disk", "folio_wait_bit": "disk",
        "page_wait_x": "disk", "ext4_file_write": "disk", "fuse_wait": "network_fs",
        "nfs_wait_bit_killable": "network_fs", "n_tty_write": "terminal",
    }  # fmt: skip
    assert {name: cause_of_wchan(name) for name in functions} == {
        name: ThreadCause(one) for name, one in functions.items()
    }
    assert [cause_of_wchan(name) for name in ("0", "", "my_futex", "kthreadd")] == [None] * 4


def test_events_of_nvml_by_its_own_names() -> None:
    names = {
        "DoubleBitEccError": ("double-bit ECC", Severity.ERROR), "SingleBitEccErrorStorm": ("storm", Severity.WARNING),
        "DramRetirementEvent": ("replaced by a spare", Severity.WARNING),
        "DramRetirementFailure": ("could not be replaced", Severity.ERROR),
        "NonFatalPoisonError": ("one program", Severity.WARNING), "FatalPoisonError": ("every program", Severity.ERROR),
        "GpuUnavailableError": ("cannot be used", Severity.ERROR), "GpuRecoveryAction": ("recovery", Severity.WARNING),
    }  # fmt: skip
    assert {getattr(pynvml, f"nvmlEventType{name}"): severity for name, (_, severity) in names.items()} == {
        bit: severity for bit, (_, severity) in _OTHER_EVENTS.items()
    }
    assert all(words in _OTHER_EVENTS[getattr(pynvml, f"nvmlEventType{name}")][0] for name, (words, _) in names.items())


@pytest.mark.parametrize(
    ("io", "status", "most"),
    [
        ("rchar: 500\nwchar: 9\nread_bytes: 400\n", "RssAnon:\t 8 kB\nRssFile:\t 0 kB\n", 500),
        ("rchar: 5\nwchar: 9000\nread_bytes: 400\n", "RssFile:\t 0 kB\n", 400),
        ("rchar: 5\nread_bytes: 400\n", "RssFile:\t 3 kB\n", 3072),
        ("", "Name:\tx\n", 0),
        ("rchar: odd\nread_bytes\n", "RssFile:\n", 0),
    ],
)
def test_what_a_process_has_read_at_most(monkeypatch: pytest.MonkeyPatch, io: str, status: str, most: int) -> None:
    texts = {"/proc/7/io": io, "/proc/7/status": status}
    monkeypatch.setattr(procfs, "read_text", lambda path: texts.get(str(path)))
    assert loading.bytes_read(7) == most
    assert loading.bytes_read(8) == 0


ticks = st.dictionaries(
    st.sampled_from(["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]), st.integers(0, 10**6)
)


@given(ticks, ticks, st.floats(0.1, 100), st.floats(0, 100))
def test_shares_of_the_cpus_time(before: dict[str, int], now: dict[str, int], seconds: float, visible: float) -> None:
    """Counters that went back have not grown; ticks are hundredths of a second here."""
    grown = {name: max(0, value - before.get(name, 0)) for name, value in now.items()}
    found = dict(consumers._shares(before, now, seconds, visible))
    total = sum(grown.values())
    if not total:
        assert found == {}
        return
    interrupts = sum(grown.get(name, 0) for name in ("irq", "softirq"))
    cores = sum(grown.get(name, 0) for name in ("user", "nice", "system")) * consumers._TICK_S / seconds
    expected = {
        v.HOST_INTERRUPTS: 100 * interrupts / total,
        v.HOST_CPU: cores + interrupts * consumers._TICK_S / seconds,
        v.HOST_CPU_UNSEEN: max(0.0, cores - visible),
    }
    assert found == pytest.approx(expected | ({v.HOST_STEAL: 100 * grown["steal"] / total} if "steal" in grown else {}))
