"""Change the code a little, many times over, and see whether a test notices.

Usage: .venv/bin/python benchmarks/mutants.py [--sample N] [--seed N] [--kernel] [PLACE...]

A PLACE is a folder or a file, of which a sample is tried, or FILE:LINE, of which everything is. Each mutant is made in
a copy of the tree, and the tests that run its function are run until one fails, one after the other. Which those are is
recorded once (.mutants.json), and anew for test files that have changed. Tests that need probes in the kernel take no
part without --kernel. Mutants that change nothing that can be observed are named in mutants.toml with the reason, and
do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.forked_tests import NO_ANSWER, ForkServer
from benchmarks.mutations import Mutant, functions, mutants

ROOT = Path(__file__).resolve().parent.parent
RECORD, KNOWN = ROOT / ".mutants.json", ROOT / "benchmarks" / "mutants.toml"
PLACES = ("llmtop/analysis", "parsers", "collectors")
TESTS = (
    *("tests/analysis", "tests/parsers", "tests/recording", "tests/collectors", "tests/servers", "tests/cli"),
    *("tests/session", "tests/python"),
    *(f"tests/test_{what}.py" for what in ("columns", "commands", "ids", "lines", "model", "remedies", "runs")),
    "tests/test_verdicts_by_engine.py",
)
PYTEST = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0"]
MOST_S, OTHERS_S = 60.0, 15.0
"""Of tests that ran a mutant's function, and of others of their files: who survives the quickest is a survivor."""
STARTING_S, FORKED_S, SLOWER = 30.0, 5.0, 10.0
"""What a run may take: a start or a fork, and so many times what its tests took when they were recorded."""


class Recorder:
    """A plugin of pytest that notes which functions a test runs, how long it takes, and which tests pass."""

    def __init__(self, with_kernel: bool) -> None:
        import coverage

        self.with_kernel = with_kernel
        self.seconds: Counter[str] = Counter()
        self.not_passed: set[str] = set()
        self.coverage = coverage.Coverage(data_file=None, source=["llmtop", "collectors", "parsers"], config_file=False)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        if not self.with_kernel:
            items[:] = [item for item in items if item.get_closest_marker("kernel") is None]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.outcome != "passed":
            self.not_passed.add(report.nodeid)

    def found(self) -> dict[str, Any]:
        """By test that passes: seconds, and the functions it runs."""
        data, root = self.coverage.get_data(), f"{Path.cwd().resolve()}/"
        tests: dict[str, dict[str, Any]] = {
            name: {"seconds": s, "runs": set()} for name, s in self.seconds.items() if name not in self.not_passed
        }
        for file in data.measured_files():
            function_at = functions(Path(file).read_text())
            for line, names in data.contexts_by_lineno(file).items():
                for name in tests.keys() & set(names):
                    tests[name]["runs"].add(f"{file.removeprefix(root)}:{function_at.get(line, '')}")
        return {name: {"seconds": test["seconds"], "runs": sorted(test["runs"])} for name, test in tests.items()}


def record(into: str, with_kernel: bool, files: Sequence[str]) -> None:
    """In a process of its own: run tests and write what each runs."""
    import pytest

    recorder = Recorder(with_kernel)
    recorder.coverage.start()
    pytest.main([*PYTEST, *files], plugins=[recorder])
    recorder.coverage.stop()
    Path(into).write_text(json.dumps(recorder.found()))


def serve(channel: int, files: Sequence[str]) -> None:
    """In a process of its own: collect tests, and run in forks what comes through a socket."""
    import pytest

    server = ForkServer(socket.socket(fileno=channel))
    pytest.main([*PYTEST, f"--basetemp={Path.cwd().parent / 'forked'}", *files], plugins=[server])


def environment(tree: Path) -> dict[str, str]:
    """For a Python program in a tree."""
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}


@contextlib.contextmanager
def changed(tree: Path, mutant: Mutant) -> Iterator[None]:
    """Have a mutant in the place of its file for a while."""
    file = tree / mutant.path
    whole = file.read_text()
    file.write_text(mutant.text)
    try:
        yield
    finally:
        file.write_text(whole)


class ForkedTests:
    """Tests that a process has collected and runs in forks of itself."""

    def __init__(self, tree: Path, files: Sequence[str]) -> None:
        self._tree = tree
        self._channel, theirs = socket.socketpair()
        self._answers = self._channel.makefile("r")
        self.unfit: set[str] = set()
        """Tests that fail in forks, or never end there, whatever stands in the file."""
        self._killers: defaultdict[str, set[str]] = defaultdict(set)
        with theirs:
            self._program = subprocess.Popen(
                [sys.executable, __file__, "--serve", str(theirs.fileno()), *files], cwd=tree, env=environment(tree),
                pass_fds=(theirs.fileno(),), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self._answers.readline()  # it has loaded everything: the first mutant must not be what it loads

    def close(self) -> None:
        self._answers.close()
        self._channel.close()
        self._program.wait()

    def notice(self, mutant: Mutant, names: Sequence[str], seconds: float) -> bool:
        """Whether a test fails on a mutant that does not fail on what it was made of, or none comes to its end."""
        timeout_s, killers = FORKED_S + SLOWER * seconds, self._killers[mutant.path]
        while chosen := sorted((one for one in names if one not in self.unfit), key=lambda one: one not in killers):
            with changed(self._tree, mutant):
                failed = self._first_to_fail(mutant.path, mutant.text, chosen, timeout_s)
            if not failed or failed in killers:
                return bool(failed)
            asked = chosen if failed == NO_ANSWER else [failed]
            anyhow = self._first_to_fail(mutant.path, (self._tree / mutant.path).read_text(), asked, timeout_s)
            if not anyhow:
                killers |= {failed} - {NO_ANSWER}
                return True
            self.unfit |= set(asked) if anyhow == NO_ANSWER else {anyhow}
        return False

    def _first_to_fail(self, path: str, text: str, names: Sequence[str], timeout_s: float) -> str:
        asked = json.dumps([os.path.realpath(self._tree / path), text, names, timeout_s])
        self._channel.sendall(f"{asked}\n".encode())
        return self._answers.readline().strip("\n")


class Tree:
    """A copy of the tree in which mutants are tried, and what is known of its tests."""

    def __init__(self, folder: Path, with_kernel: bool) -> None:
        self.folder = folder / "tree"
        listed = subprocess.run(
            ["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if os.path.lexists(ROOT / name):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.folder / name, follow_symlinks=False)
        self.options = ["--kernel"] if with_kernel else []
        self.tests = self._recorded()
        self._forked: ForkedTests | None = None

    @contextlib.contextmanager
    def forking(self, places: Sequence[str]) -> Iterator[ForkedTests]:
        """Run the tests of some places in forks, as long as this lasts."""
        starts = tuple(place.partition(":")[0] for place in places)
        run = {
            name.split("::")[0] for name, one in self.tests.items() if any(r.startswith(starts) for r in one["runs"])
        }
        with contextlib.closing(ForkedTests(self.folder, sorted(run))) as self._forked:
            yield self._forked
        self._forked = None

    def _recorded(self) -> dict[str, Any]:
        kind = " ".join(["record", *self.options])
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        before = known.get(kind, {"files": {}, "tests": {}})
        found = [file for place in TESTS for file in sources(self.folder, place) if "/test_" in f"/{file}"]
        found += with_examples(self.folder)
        files = {file: hashlib.sha256((self.folder / file).read_bytes()).hexdigest()[:16] for file in found}
        changed = [file for file, digest in files.items() if before["files"].get(file) != digest]
        kept = {
            name: test for name, test in before["tests"].items() if name.split("::")[0] in files.keys() - set(changed)
        }
        if changed:
            print(f"recording what {len(changed)} test files run", flush=True)
            told = self.folder.parent / "record.json"
            self.run([__file__, "--record", str(told), *self.options, *changed], timeout_s=None)
            kept |= json.loads(told.read_text())
            RECORD.write_text(json.dumps({**known, kind: {"files": files, "tests": kept}}))
        return kept

    def run(self, command: Sequence[str], timeout_s: float | None) -> int | None:
        """The exit status of a Python program in the tree; None when it took too long."""
        with subprocess.Popen(
            [sys.executable, *command], cwd=self.folder, env=environment(self.folder), start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as program:  # fmt: skip
            try:
                return program.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)

    def fate(self, mutant: Mutant) -> str:
        """What becomes of a mutant: killed, or why not.

        A fixture or a cache may have run its function in another test than the one that looks at the outcome: what
        survives the tests that ran it is tried on all others of their files. Tests that cannot be run in forks are
        run in a process of their own; and all of them where what is in no function may have been made use of while
        other modules were loaded.
        """
        first = self.tests_of(mutant)
        files = {name.split("::")[0] for name in first}
        others = self._quickest({name for name in self.tests if name.split("::")[0] in files} - set(first), OTHERS_S)
        if self._forked and any(self._forked.notice(mutant, names, self._seconds(names)) for names in (first, others)):
            return "killed"
        is_inside = functions((self.folder / mutant.path).read_text()).get(mutant.line)
        left = self._forked.unfit if self._forked and is_inside else {*first, *others}
        with changed(self.folder, mutant):
            chosen = ([name for name in names if name in left] for names in (first, others))
            if not all(self._passes(names) for names in chosen if names):
                return "killed"
        return "survived" if first else "no test"

    def _passes(self, names: Sequence[str]) -> bool:
        timeout_s = STARTING_S + SLOWER * self._seconds(names)
        chosen = self.folder.parent / "chosen"
        chosen.write_text("\n".join(names))
        return self.run(["-m", "pytest", *PYTEST, "-x", f"@{chosen}"], timeout_s) == 0

    def _seconds(self, names: Sequence[str]) -> float:
        return sum(self.tests[name]["seconds"] for name in names)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run its function; where it is in none, those of its file, and of all that use that.

        Where there are none, the code runs in another process: then all in the files that import its package or module.
        """
        inside = functions((self.folder / mutant.path).read_text()).get(mutant.line)
        files = tuple(f"{path}:" for path in (mutant.path, *self._users(mutant.path)))
        runs = {name: test["runs"] for name, test in self.tests.items()}
        if inside:
            chosen = [name for name, ran in runs.items() if f"{mutant.path}:{inside}" in ran]
        else:
            users = [file for file in {name.split("::")[0] for name in runs} if self._imports(file, mutant.path)]
            chosen = [
                name
                for name, ran in runs.items()
                if name.split("::")[0] in users or any(one.startswith(files) for one in ran)
            ]
        if not chosen:
            near = re.compile(rf"llmtop\.{re.escape(module_of(mutant.path))}\b")
            chosen = [name for name in self.tests if near.search((self.folder / name.split("::")[0]).read_text())]
        return self._quickest(chosen)

    def _quickest(self, names: Iterable[str], most_s: float = MOST_S) -> list[str]:
        """As many of the quickest as so much time suffices for: who survives them counts as a survivor.

        File after file, the shortest first: what the tests of a file share is made once.
        """
        ordered = sorted(names, key=lambda name: (self.tests[name]["seconds"], name))
        ends = accumulate(self.tests[name]["seconds"] for name in ordered)
        chosen = {name for name, end_s in zip(ordered, ends, strict=True) if end_s <= most_s} or {*ordered[:1]}
        by_file: defaultdict[str, list[str]] = defaultdict(list)
        for name in self.tests:
            if name in chosen:
                by_file[name.split("::")[0]].append(name)
        return [name for names in sorted(by_file.values(), key=self._seconds) for name in names]

    def _users(self, path: str) -> list[str]:
        """The files that import something of a file: a limit that it names may be held by them alone."""
        return [file for place in PLACES for file in sources(self.folder, place) if self._imports(file, path)]

    def _imports(self, file: str, path: str) -> bool:
        """Whether a file imports something of another one."""
        module = path.removeprefix("llmtop/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        package, _, name = module.rpartition(".")
        imports = rf"^\s*from llmtop\.(?:{re.escape(module)} import|{re.escape(package)} import .*\b{name}\b)"
        return re.search(imports, (self.folder / file).read_text(), re.MULTILINE) is not None


def module_of(path: str) -> str:
    """What tests import of a file, without "llmtop.": its folder, or itself where that holds everything."""
    parts = path.removeprefix("llmtop/").removesuffix(".py").split("/")
    return ".".join(parts if len(parts) == 2 else parts[:-1])


def sources(tree: Path, place: str) -> list[str]:
    """The Python files at a place, but generated ones."""
    found = [tree / place] if (tree / place).is_file() else sorted((tree / place).rglob("*.py"))
    return [str(path.relative_to(tree)) for path in found if not path.name.endswith("_pb2.py")]


def with_examples(tree: Path) -> list[str]:
    """The files whose docstrings have examples, by the paths by which the suite runs them."""
    every = [file for place in PLACES for file in sources(tree, place) if ">>> " in (tree / file).read_text()]
    return [f"llmtop/{file.removeprefix('llmtop/')}" for file in every]


def drawn(tree: Path, place: str, sample: int, seed: int) -> list[Mutant]:
    """The mutants of a place that are tried."""
    name, _, line = place.partition(":")
    every = [one for path in sources(tree, name) for one in mutants(path, (tree / path).read_text())]
    if line:
        return [one for one in every if one.line == int(line)]
    return random.Random(seed).sample(every, min(sample, len(every)))


def tell(tree: Tree, place: str, tried: Sequence[Mutant]) -> None:
    """Print what becomes of the mutants of a place."""
    equivalent = {(one["path"], one["was"], one["becomes"]) for one in tomllib.loads(KNOWN.read_text())["equivalent"]}
    fates: Counter[str] = Counter()
    for one in tried:
        fate = "equivalent" if (one.path, one.was, one.becomes) in equivalent else tree.fate(one)
        fates[fate] += 1
        print(f"{fate:10}  {one}", flush=True)
    told = ", ".join(f"{number} {fate}" for fate, number in fates.most_common())
    print(f"{place}: {fates['killed']} of {fates.total() - fates['equivalent']} killed ({told})", flush=True)


def main() -> None:
    """Try what is asked for, and tell how many were killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("places", nargs="*", metavar="PLACE", help=f"a folder, FILE or FILE:LINE ({' '.join(PLACES)})")
    parser.add_argument("--sample", type=int, default=60, metavar="N", help="mutants of each place (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="other mutants (%(default)s)")
    parser.add_argument("--kernel", action="store_true", help="with the tests that need probes in the kernel")
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.record:
        record(given.record, given.kernel, given.places)
        return
    if given.serve:
        serve(given.serve, given.places)
        return
    places = given.places or PLACES
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder), given.kernel)
        with tree.forking(places):
            for place in places:
                tell(tree, place, drawn(tree.folder, place, given.sample, given.seed))


if __name__ == "__main__":
    main()
