"""Opens files of other processes on behalf of `llmtop.foreign`, with no more rights than these processes have.

A program of its own, which imports nothing of llmtop. It forks for each question: a file system that does not answer
holds up one child, which llmtop abandons, and nothing else. The child

1. takes the user and groups of the process, so that llmtop never reads what the process could not read itself;
2. resolves the path below the process's root: no link and no ".." leads out of a container;
3. looks at what it found by O_PATH, which opens no device and waits for no FIFO, before it opens it for reading.

A question is one datagram of JSON with the socket for the answer, which begins with "+", or with "-" and an errno.
"""

from __future__ import annotations

import ctypes
import errno
import fnmatch
import json
import os
import platform
import signal
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack

_OPENAT2 = 437
"""The same on all machines (include/uapi/asm-generic/unistd.h)."""
_HOW = struct.Struct("<QQQ")
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10
_WITHOUT_OPENAT2 = (errno.ENOSYS, errno.EPERM)
"""What a kernel before 5.6 says, and a container's filter of system calls that does not know it."""
_PATH = os.O_PATH | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_LINKS = 40
"""As the kernel allows (path_resolution(7))."""
_MOST_NAMES = 20_000
_MOST_BYTES = 1 << 16
"""Of a question: two paths and a pattern."""
_IDLE_S = 60.0
"""Without a question for so long, this program ends; llmtop starts it anew."""
Identity = tuple[int, int, list[int]]


def identity_of(process: int) -> Identity | None:
    """User, group and further groups of a process, by a descriptor of its folder; None where nothing tells them.

    A program that runs with another user's rights (setuid) may be started with any command line: the one who started it
    counts. One that root has started counts as whom it has become.
    """
    try:
        with os.fdopen(os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), errors="replace") as file:
            fields = {name: words.split() for name, _, words in (line.partition(":") for line in file)}
        users, groups = ([int(one) for one in fields[name]] for name in ("Uid", "Gid"))
        return users[0] or users[1], groups[0] or groups[1], [int(one) for one in fields.get("Groups", ())]
    except (OSError, KeyError, ValueError):
        return None


def become(identity: Identity) -> bool:
    """Give up all rights that the process does not have; false where llmtop itself may not become another user."""
    user, group, groups = identity
    try:
        os.setgroups(groups)
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    except OSError:
        return os.geteuid() == user
    return True


def resolved(root: int, path: str) -> int:
    """A descriptor (O_PATH) of what a path leads to below a folder, which no link leaves.

    Raises:
        OSError: There is nothing, or it cannot be reached.
    """
    name = ctypes.create_string_buffer(os.fsencode(path))
    how = ctypes.create_string_buffer(_HOW.pack(_PATH, 0, _IN_ROOT | _NO_MAGICLINKS), _HOW.size)
    libc = ctypes.CDLL(None, use_errno=True)
    if platform.machine() not in ("x86_64", "aarch64"):
        return walked(root, path)
    found = int(libc.syscall(ctypes.c_long(_OPENAT2), root, name, how, ctypes.c_size_t(_HOW.size)))
    if found >= 0:
        return found
    if (code := ctypes.get_errno()) in _WITHOUT_OPENAT2:
        return walked(root, path)
    raise OSError(code, os.strerror(code))


def walked(root: int, path: str) -> int:
    """The same where the kernel has no openat2(2): name by name, each opened in the folder that was opened before."""
    folders, links = [root], 0
    left = path.split("/")[::-1]
    with ExitStack() as opened:
        while left:
            name = left.pop()
            if name == "..":
                folders = folders[: max(1, len(folders) - 1)]
            elif name not in ("", "."):
                found = os.open(name, _PATH | os.O_NOFOLLOW, dir_fd=folders[-1])
                opened.callback(os.close, found)
                if not stat.S_ISLNK(os.fstat(found).st_mode):
                    folders.append(found)
                    continue
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = os.readlink("", dir_fd=found)
                folders = folders[:1] if target.startswith("/") else folders
                left += target.split("/")[::-1]
        return os.dup(folders[-1])


def may_be_read(state: os.stat_result, identity: Identity) -> bool:
    """Whether a file's mode lets a process read it, for a llmtop that cannot try as that process."""
    user, group, groups = identity
    if state.st_uid == user:
        return bool(state.st_mode & stat.S_IRUSR)
    return bool(state.st_mode & (stat.S_IRGRP if state.st_gid in (group, *groups) else stat.S_IROTH))


class _Process:
    """A process, seen with its own rights.

    Args:
        folder: The process's folder in /proc.
        output: Which of its open files is wanted, in place of one that a path leads to.
    """

    def __init__(self, folder: str, output: str = "") -> None:
        process = os.open(folder, _PATH | os.O_DIRECTORY)
        # In this order: of a process that has ended since, the folder leads to no root and to no file.
        self._identity = identity_of(process)
        self._root = os.open("root", _PATH | os.O_DIRECTORY, dir_fd=process)
        self._output = os.open(f"fd/{output}", _PATH, dir_fd=process) if output else None
        self._is_it = self._identity is None or become(self._identity)

    def find(self, path: str, kind: int) -> int:
        """A descriptor (O_PATH) of what lies there, of one kind of file."""
        found = resolved(self._root, path) if self._output is None else self._output
        state = os.fstat(found)
        if stat.S_IFMT(state.st_mode) != kind:
            raise OSError(errno.ENOTSOCK if kind == stat.S_IFSOCK else errno.EINVAL, "another kind of file")
        if not self._is_it and self._identity is not None and not may_be_read(state, self._identity):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return found

    def size(self, path: str) -> int | None:
        """Bytes of a file; None of what is none."""
        try:
            found = self.find(path, stat.S_IFREG)
        except OSError:
            return None
        try:
            return os.fstat(found).st_size
        finally:
            os.close(found)


def _end_of(file: int, most: int) -> bytes:
    """The last bytes of a file that llmtop holds open."""
    return os.pread(file, most, max(0, os.fstat(file).st_size - most))


def _answer(question: dict[str, str | int], to: socket.socket, files: list[int]) -> Iterator[bytes]:
    what, most, path = question["what"], int(question["most"]), str(question["path"])
    if what == "end":
        yield _end_of(files[0], most)
        return
    process = _Process(str(question["process"]), path if what == "output" else "")
    if what == "read":
        found = process.find(path, stat.S_IFREG)
        # Files of /proc claim no bytes: they are nobody's configuration.
        yield os.read(os.open(f"/proc/self/fd/{found}", _READ), min(most, os.fstat(found).st_size))
    elif what == "sizes":
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process.find(path, stat.S_IFDIR))
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(_MOST_NAMES), entries, strict=False)]
        wanted = fnmatch.filter(names, str(question["pattern"]))
        yield json.dumps({name: process.size(f"{path}/{name}") for name in wanted}).encode()
    elif what == "output":
        file = os.open(f"/proc/self/fd/{process.find('', stat.S_IFREG)}", _READ)
        socket.send_fds(to, [b"+"], [file])
    elif what == "folder":
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process.find(path, stat.S_IFDIR))
        socket.send_fds(to, [b"+"], [folder])
    elif what == "socket":
        found = process.find(path, stat.S_IFSOCK)
        if not os.access(f"/proc/self/fd/{found}", os.W_OK, effective_ids=True):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        socket.send_fds(to, [b"+"], [found])


def _reply(message: bytes, to: socket.socket, files: list[int]) -> None:
    try:
        for text in _answer(json.loads(message), to, files):
            to.sendall(b"+" + text)
    except OSError as error:
        to.sendall(f"-{error.errno or errno.EIO}".encode())


def serve(questions: socket.socket) -> None:
    """Answer until llmtop has ended, or asks nothing more."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    questions.settimeout(_IDLE_S)
    questions.send(b"+")
    while True:
        try:
            message, files, _, _ = socket.recv_fds(questions, _MOST_BYTES, 2)
        except TimeoutError:
            questions.shutdown(socket.SHUT_RD)  # what was asked until now is still answered
            continue
        if not message:
            break
        if os.fork() == 0:
            try:
                questions.close()
                _reply(message, socket.socket(fileno=files[0]), files[1:])
            finally:
                os._exit(0)
        for file in files:
            os.close(file)
    os.killpg(0, signal.SIGKILL)  # it leads its own session: with it go the children that still wait


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
