"""Tests that are collected once and run in forks, in each of which one file is another.

A start of Python and of pytest takes longer than most tests do. What other modules computed with the file's functions
when they were loaded stays as it was: who survives here is to be tried in a process of its own.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import functools
import gc
import json
import os
import select
import signal
import socket
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from llmtop.servers.supervise import PR_SET_CHILD_SUBREAPER, descendants

_KEPT = (FunctionType, functools._lru_cache_wrapper, ModuleType, type)
"""What stays itself in a module; of functions the code is another one."""
NO_ANSWER = "no answer"
"""What stands in place of a test's name where the fork crashed or took too long."""


class ForkServer:
    """A plugin of pytest that waits for changed files once tests are collected, and names the first test that fails."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._functions: dict[str, list[FunctionType]] = defaultdict(list)
        self._caches: list[Any] = []

    def pytest_runtestloop(self, session: Any) -> bool:
        gc.unfreeze()  # what a conftest has put aside for good is not listed
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self._functions[os.path.realpath(one.__code__.co_filename)].append(one)
            elif isinstance(one, functools._lru_cache_wrapper):
                self._caches.append(one)
        items = {item.nodeid: item for item in session.items}
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._channel.sendall(b"\n")
        with self._channel.makefile("r") as requests:
            for line in requests:
                file, text, names, timeout_s = json.loads(line)
                chosen = [items[name] for name in names if name in items]
                self._channel.sendall(f"{self._in_fork(session, chosen, file, text, timeout_s)}\n".encode())
        return True

    def _in_fork(self, session: Any, items: Sequence[Any], file: str, text: str, timeout_s: float) -> str:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setsid()
                self._put(file, text)
                os.write(writer, f"{_first_to_fail(session, items)}\n".encode())
            os._exit(0)
        os.close(writer)
        try:
            is_told, _, _ = select.select([reader], [], [], timeout_s)
            told = os.read(reader, 1 << 16).decode() if is_told else ""
            return told.strip("\n") if told else NO_ANSWER
        finally:
            os.close(reader)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            _end_children()

    def _put(self, file: str, text: str) -> None:
        """Have a text in place of a file, as far as it is loaded: its code, its constants, and nothing remembered."""
        whole = compile(text, file, "exec")
        codes = list(_codes(whole))
        times = Counter(place for place, _ in codes)
        only = {place: code for place, code in codes if times[place] == 1}
        for function in self._functions[file]:
            code = only.get(_place(function.__code__))
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code
        for module in list(sys.modules.values()):
            if os.path.realpath(getattr(module, "__file__", None) or "") == file:
                _put_constants(module, text)
        for cache in self._caches:
            cache.cache_clear()


class _WithoutClasses(ast.NodeTransformer):
    """Of a module: constants are of the classes that are there, by which tests and others know them."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        return node


def _put_constants(module: ModuleType, text: str) -> None:
    """Give a module the constants and default arguments of a text, and its constants to those that imported them."""
    made = {name: value for name, value in vars(module).items() if name.startswith("__") or isinstance(value, type)}
    exec(compile(_WithoutClasses().visit(ast.parse(text)), module.__file__ or "", "exec"), made)
    for name, value in made.items():
        before = vars(module).get(name)
        if isinstance(value, FunctionType) and isinstance(before, FunctionType):
            before.__defaults__, before.__kwdefaults__ = value.__defaults__, value.__kwdefaults__
        elif not name.startswith("__") and not isinstance(value, _KEPT):
            for user in list(sys.modules.values()):
                if name in vars(user) and vars(user)[name] is before:
                    setattr(user, name, value)


def _end_children() -> None:
    """End the fork, and what it has started: a mutant may keep a test from ending a program of a session of its own.

    What loses its parent becomes a child of this process, a subreaper (prctl(2)).
    """
    with contextlib.suppress(ChildProcessError):  # there is none any more
        while True:
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield _place(inner), inner
            yield from _codes(inner)


def _first_to_fail(session: Any, items: Sequence[Any]) -> str:
    for item, after in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if session.testsfailed:
            return str(item.nodeid)
    return ""
