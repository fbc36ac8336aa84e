"""What a thread waits for, from what /proc shows of it at one moment.

Three witnesses, asked in this order:

1. the state letter of /proc/PID/stat (proc_pid_stat(5)): R is on a CPU or queued for one, T and t are stopped, Z and X
   ended;
2. wchan, the kernel function it sleeps in. Everyone who may read the process may read it, but some kernels always
   say 0;
3. syscall, the number and arguments of the call it is in. That needs ptrace rights. For read, write and ioctl the
   file behind the first argument tells what the wait is about.

State D without a better witness stays "uninterruptible": mostly a disk, but drivers wait so too.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping

from llmtop.vocabulary import ThreadCause

_BY_STATE = {
    "R": ThreadCause.RUNNING,
    "T": ThreadCause.STOPPED,
    "t": ThreadCause.STOPPED,
    "Z": ThreadCause.EXITED,
    "X": ThreadCause.EXITED,
}
_BY_WCHAN = tuple(
    (re.compile(pattern), cause)
    for pattern, cause in (
        (r"_*futex|do_futex", ThreadCause.FUTEX),
        (r"ep_poll|do_epoll|epoll", ThreadCause.EPOLL),
        (r"poll_schedule_timeout|do_(sys_)?poll|do_select|schedule_hrtimeout", ThreadCause.POLL),
        (r"(hrtimer|do|common|clock)_n(ano)?sleep", ThreadCause.NANOSLEEP),
        (r"(anon_)?pipe_|wait_for_partner|eventfd_", ThreadCause.PIPE),
        # The closed driver's, the open modules' (os_, rm_) and unified memory's functions.
        (r"_?nv[_A-Z0-9i]|uvm_|os_(acquire|wait|cond)|rm_", ThreadCause.GPU_DRIVER),
        (r"sk_wait|__skb_wait|skb_wait|unix_|inet_|tcp_|udp_|sock_", ThreadCause.SOCKET),
        (r"n_tty_|tty_|pty_", ThreadCause.TERMINAL),
        (r"io_cqring_wait", ThreadCause.IO_URING),
        (r"do_wait|kernel_wait4|vfork_done|wait_for_vfork_done", ThreadCause.CHILD),
        (r"do_sigtimedwait|sigsuspend|do_pause|sys_pause|__do_sys_pause", ThreadCause.SIGNAL),
        (r"ptrace_stop|do_signal_stop|do_jobctl_trap", ThreadCause.STOPPED),
        (
            r"io_schedule|(folio|page)_wait|wait_on_(page|buffer)|folio_|jbd2_|blk_|ext4_|xfs_|btrfs_"
            r"|rq_qos_wait|submit_bio_wait|filemap_",
            ThreadCause.DISK,
        ),
        (r"_*nfs\d?_|rpc_|_*fuse_|request_wait_answer|cifs_|smb\d_|ceph_|p9_|ll_", ThreadCause.NETWORK_FS),
    )
)
# System call numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64).
_X86_64 = {
    ThreadCause.FUTEX: (202, 449, 455),
    ThreadCause.EPOLL: (232, 281, 441),
    ThreadCause.POLL: (7, 23, 270, 271),
    ThreadCause.NANOSLEEP: (35, 230),
    ThreadCause.SOCKET: (42, 43, 44, 45, 46, 47, 288, 299, 307),
    ThreadCause.CHILD: (61, 247),
    ThreadCause.SIGNAL: (34, 128, 130),
    ThreadCause.IO_URING: (426,),
    ThreadCause.DISK: (26, 74, 75, 162, 277, 306),  # msync, fsync, fdatasync, sync, sync_file_range, syncfs
}
_AARCH64 = {
    ThreadCause.FUTEX: (98, 449, 455),
    ThreadCause.EPOLL: (22, 441),
    ThreadCause.POLL: (72, 73),
    ThreadCause.NANOSLEEP: (101, 115),
    ThreadCause.SOCKET: (202, 203, 206, 207, 211, 212, 242, 243, 269),
    ThreadCause.CHILD: (95, 260),
    ThreadCause.SIGNAL: (133, 137),
    ThreadCause.IO_URING: (426,),
    ThreadCause.DISK: (81, 82, 83, 84, 227, 267),
}
_FUTEX = {"x86_64": 202, "aarch64": 98}
"""Of all its calls the one by which glibc waits, with limit or without."""
_ON_A_FILE = {"x86_64": frozenset({0, 1, 16, 17, 18, 19, 20}), "aarch64": frozenset({29, 63, 64, 65, 66, 67, 68})}
"""ioctl, and read and write in all their forms."""


def _by_number(table: dict[ThreadCause, tuple[int, ...]]) -> dict[int, ThreadCause]:
    return {number: cause for cause, numbers in table.items() for number in numbers}


_NO_CALLS: Mapping[int, ThreadCause] = {}
_BY_SYSCALL = {"x86_64": _by_number(_X86_64), "aarch64": _by_number(_AARCH64)}


def cause_of_state(state: str) -> ThreadCause | None:
    """What the state letter alone settles; None for sleeps, which need another witness."""
    return _BY_STATE.get(state)


def cause_of_wchan(wchan: str) -> ThreadCause | None:
    """What a kernel function's name tells.

    >>> cause_of_wchan("futex_wait_queue").value, cause_of_wchan("ep_poll").value, cause_of_wchan("0")
    ('futex', 'epoll', None)
    """
    return next((cause for pattern, cause in _BY_WCHAN if pattern.match(wchan)), None)


def cause_of_syscall(
    line: str, file_of: Callable[[int], str | None], machine: str = platform.machine()
) -> ThreadCause | None:
    """What /proc/PID/task/TID/syscall tells.

    Args:
        line: "number argument ... stack-pointer instruction-pointer" (arguments in hexadecimal), "running", or
            "-1 ..." for a thread that waits outside of a call (a page fault).
        file_of: What a file descriptor of the process points to.
        machine: Whose numbers they are.
    """
    number, _, arguments = line.partition(" ")
    if not number.isdigit():
        return None
    return cause_of_call(int(number), lambda: file_of(int(arguments.split(" ", 1)[0], 16)), machine)


def cause_of_call(number: int, file: Callable[[], str | None], machine: str = platform.machine()) -> ThreadCause | None:
    """What a system call tells by its number and, of one on a file, by what its descriptor points to."""
    if number in _ON_A_FILE.get(machine, ()):
        return cause_of_file(file() or "")
    return _BY_SYSCALL.get(machine, _NO_CALLS).get(number)


def timed_futex(line: str, machine: str = platform.machine()) -> int | None:
    """The address at which a thread waits in futex with a time limit, of a line of `cause_of_syscall`; else None.

    >>> hex(timed_futex("202 0x7f96f4e6f0 0x89 0x0 0x7f95980ae0 0x0 0xffffffff 0x1 0x2", "x86_64"))
    '0x7f96f4e6f0'
    >>> timed_futex("202 0x7f96f4e6f0 0x80 0x0 0x0 0x0 0x0 0x1 0x2", "x86_64")
    """
    words = line.split()
    if len(words) < 5 or words[0] != str(_FUTEX.get(machine)) or int(words[4], 16) == 0:
        return None
    return int(words[1], 16)


def cause_of_file(path: str) -> ThreadCause:
    """What waiting in read, write or ioctl on a file is about.

    Args:
        path: As `procfs.file_behind` has it.

    >>> [cause_of_file(path).value for path in ("pipe:[1]", "socket:[2]", "/dev/nvidia0", "/models/a.safetensors")]
    ['pipe', 'socket', 'gpu_driver', 'disk']
    >>> [cause_of_file(path).value for path in ("fifo:/run/log", "tty:/dev/pts/3", "network:/models/a.safetensors")]
    ['pipe', 'terminal', 'network_fs']
    """
    if path.startswith("/dev/nvidia"):
        return ThreadCause.GPU_DRIVER
    if path.startswith(("pipe:", "fifo:", "anon_inode:[eventfd")):
        return ThreadCause.PIPE
    if path.startswith("socket:"):
        return ThreadCause.SOCKET
    if path.startswith(("tty:", "network:")):
        return ThreadCause.TERMINAL if path.startswith("tty:") else ThreadCause.NETWORK_FS
    is_special = not path.startswith("/") or path.startswith(("/dev/", "/proc/", "/sys/"))
    return ThreadCause.OTHER if is_special else ThreadCause.DISK
