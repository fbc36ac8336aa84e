"""Damages sample files in many ways and reads each: is damage ever a traceback, a hang, or silent?

    python benchmarks/damage.py [--cases 2000] [--seed 1] [--list] [FILE...]

Each case is one file with bytes changed, blocks zeroed or swapped, or its end cut off, read by `llmtop report --format
json` in a fork. "told" is an error on stderr or one more issue in the report; "same" is the report of the whole file;
"silent" is another report without a new issue, which a format without checksums cannot always avoid. The drawn damage
depends on the seed and the file alone, so that two checkouts read the same files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))
from benchmarks.bench import machine, table  # noqa: E402

SAMPLES: Final = ROOT / "sample_traces"
KINDS: Final = ("bytes", "zeros", "swap", "cut")
PACKED: Final = {".xz": lzma.decompress, ".gz": gzip.decompress}
MOST_CPU_S, MOST_WALL_S = 30, 180
"""More is a hang."""
MOST_OUTPUT: Final = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """What came of one case; `report` is its JSON, or None."""

    rc: int
    report: Any
    said: str
    cpu_s: float
    rss_mib: float

    @property
    def issues(self) -> list[Any]:
        """What the report says is wrong with the file."""
        return [] if self.report is None else self.report.get("issues", [])

    def told_as(self, whole: Outcome) -> str:
        """In which column it is counted."""
        if self.rc < 0:
            return "hang" if -self.rc in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL) else "crash"
        if "Traceback" in self.said or "a fault of its own" in self.said or self.said.count("\n") > 1:
            return "traceback"
        if self.rc or self.issues != whole.issues or self.said != whole.said:
            return "told"
        return "same" if self.report == whole.report else "silent"


def main() -> None:
    """Read all cases, and print what came of them by format and by kind of damage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="instead of all samples")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print each case that was silent or worse")
    args = parser.parse_args()
    files = args.files or sorted(path for path in SAMPLES.rglob("*") if path.is_file() and path.name != "README.md")
    each = -(-args.cases // len(files))
    warm_up(files)
    by_format, by_kind = dict[str, Counter[str]](), dict[str, Counter[str]]()
    cpu_s, rss_mib = list[float](), list[float]()
    for path in files:
        content, name = plain(path)
        whole = read(name, content)
        for case, kind, damaged in damages(content, random.Random(f"{args.seed} {path.name}"), each):
            outcome = read(name, damaged)
            told = outcome.told_as(whole)
            by_format.setdefault(format_of(name), Counter())[told] += 1
            by_kind.setdefault(kind, Counter())[told] += 1
            cpu_s.append(outcome.cpu_s)
            rss_mib.append(outcome.rss_mib)
            if args.list and told not in ("told", "same"):
                print(
                    f"{told} {name} {case}: {changes(whole.report, outcome.report)} {outcome.said.strip()}", flush=True
                )
    print(machine())
    for found in (by_format, by_kind):
        columns = ("told", "same", "silent", "traceback", "crash", "hang")
        found["all"] = sum(found.values(), Counter())
        print(table(("", *columns), [(name, *(count[one] for one in columns)) for name, count in found.items()]))
    print(f"most CPU {max(cpu_s):.1f} s, most memory {max(rss_mib):.0f} MiB")


def plain(path: Path) -> tuple[bytes, str]:
    """A file without what it is compressed by: damage to that is found by its checksums."""
    unpack = PACKED.get(path.suffix)
    return (path.read_bytes(), path.name) if unpack is None else (unpack(path.read_bytes()), path.stem)


def format_of(name: str) -> str:
    """The part of a name that says what a file is."""
    return name.partition(".")[2]


def damages(content: bytes, draw: random.Random, count: int) -> Iterator[tuple[str, str, bytes]]:
    """So many damaged copies: what was done in words, its kind, and the copy."""
    block = min(4096, max(16, len(content) // 16))
    blocks = max(1, len(content) // block)
    for case in range(count):
        kind, new = KINDS[case % len(KINDS)], bytearray(content)
        at, other = (draw.randrange(blocks) * block for _ in range(2))
        if kind == "bytes":
            places = [draw.randrange(len(content)) for _ in range(draw.randint(1, 4))]
            for place in places:
                new[place] = draw.randrange(256)
            done = ", ".join(f"byte {place} is {new[place]}" for place in places)
        elif kind == "zeros":
            new[at : at + block] = bytes(len(new[at : at + block]))
            done = f"{block} zeros at {at}"
        elif kind == "swap":
            new[at : at + block], new[other : other + block] = content[other : other + block], content[at : at + block]
            done = f"blocks of {block} at {at} and {other} swapped"
        else:
            del new[(end := draw.randrange(1, len(content))) :]
            done = f"cut at {end}"
        if new != content:
            yield done, kind, bytes(new)


def warm_up(files: Sequence[Path]) -> None:
    """Import here what reading takes: the forks then need not."""
    for path in {format_of(path.name): path for path in files}.values():
        content, name = plain(path)
        read(name, content, modules=True)


def read(name: str, content: bytes, *, modules: bool = False) -> Outcome:
    """Read a file in a fork; with `modules` only to import here what it has imported."""
    with tempfile.TemporaryDirectory(prefix="llmtop-damage-") as folder:
        Path(folder, name).write_bytes(content)
        pid = os.fork()
        if not pid:
            _report(folder, name, modules=modules)
        _, status, use = os.wait4(pid, 0)
        said = Path(folder, "stderr").read_text(errors="replace")
        if modules:
            for module in Path(folder, "modules").read_text().split():
                __import__(module)
        try:
            report = json.loads(Path(folder, "report").read_bytes())
        except ValueError:
            report = None
    rc = os.waitstatus_to_exitcode(status)
    return Outcome(rc, report, said, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024)


def _report(folder: str, name: str, *, modules: bool) -> None:
    """The fork: never returns."""
    code = 70
    try:
        os.chdir(folder)
        for file, number in (("report", 1), ("stderr", 2)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), number)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + 5))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_OUTPUT, MOST_OUTPUT))
        signal.alarm(MOST_WALL_S)
        before = set(sys.modules)
        from llmtop.cli.run import run

        code = run(["report", name, "--format", "json"])
        sys.stdout.flush()
        sys.stderr.flush()
        if modules:
            ours = (one for one in sys.modules if one not in before and one.split(".")[0] in ("llmtop", "numpy"))
            Path("modules").write_text("\n".join(ours))
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def changes(whole: Any, other: Any, path: str = "") -> str:
    """Where a report differs from the one of the whole file: the first few places."""
    return "; ".join(one for _, one in zip(range(3), _changes(whole, other, path), strict=False))


def _changes(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from _changes(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield f"{path}: {len(one)} -> {len(other)}"
        for i, (a, b) in enumerate(zip(one, other, strict=False)):
            yield from _changes(a, b, f"{path}[{i}]")
    elif one != other:
        yield f"{path}: {str(one)[:40]!r} -> {str(other)[:40]!r}"


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s")
