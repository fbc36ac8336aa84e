"""What docs/python.md says of tables, as the sample traces have them: run to write it anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import llmtop

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/python.md"
SAMPLES = ROOT / "sample_traces"
OF_ALL_TABLES = (
    SAMPLES / "ncu/2025.3.1/unfused.ncu-rep.xz",
    SAMPLES / "nsys/2025.3.2/llama-prefill-decode.sqlite.xz",
    SAMPLES / "kineto/1/graph-and-eager.pt.trace.json.gz",
    SAMPLES / "py-spy/0.4.3/two-threads.py-spy.json",
    SAMPLES / "recording/1/demo-server.llmtop.xz",
    SAMPLES / "cuda-core/13.0/trap.nvcudmp.xz",
)
"""Files that together have each table in each of its forms."""
BEGIN, END = "<!-- tables: tests/python/documented.py writes them -->\n", "<!-- end of tables -->\n"
REASON = "samples that waited for this"


def frames() -> dict[str, list[llmtop.Frame]]:
    """By name each table of each file that has it."""
    found: dict[str, list[llmtop.Frame]] = {name: [] for name in llmtop.TABLES}
    for path in OF_ALL_TABLES:
        trace = llmtop.load(path)
        for name, made in found.items():
            try:
                made.append(llmtop.table(trace, name))
            except llmtop.FileError:
                continue  # it has another
    return found


def section(name: str, of: list[llmtop.Frame]) -> Iterator[str]:
    """The columns of a table, with what they are in."""
    yield from ("", f"### `{name}`", "", "| column | unit | |", "|---|---|---|")
    columns = {column.key: column for frame in of for column in frame.columns if column.help != REASON}
    for column in columns.values():
        yield f"| `{column.key}` | {column.unit or 'text'} | {column.help or column.title} |"


def tables(found: dict[str, list[llmtop.Frame]]) -> str:
    """The part of the page between `BEGIN` and `END`."""
    return "".join(f"{line}\n" for name, of in found.items() for line in section(name, of)) + "\n"


def examples() -> list[tuple[str, str]]:
    """Each program of the page, and what it prints."""
    return re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```\n", PAGE.read_text(), re.DOTALL)


if __name__ == "__main__":
    text = PAGE.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{head}{BEGIN}{tables(frames())}{END}{tail}")
