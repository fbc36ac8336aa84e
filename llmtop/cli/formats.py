"""docs/formats.md: the files that llmtop opens, as its parsers describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.parsers.base import Content
from llmtop.parsers.compressed import COMPRESSIONS
from llmtop.parsers.registry import parsers
from llmtop.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.parsers.base import Parser

_HEAD = """\
# What llmtop opens

<!-- `make manual` writes this page; it is made of what the parsers say of themselves. -->

`llmtop open` and `llmtop report` tell a file by its content, whatever its name, and read it also where it is packed
({}). What a file lacks is listed with the reason, and with the command that would collect it.

- `-` is standard input: `ssh gpu7 cat run.ncu-rep | llmtop report -`.
- A `.zip` or `.tar` (packed or not) is the reports in it; each has a name as in a folder: `run.zip/rank0.sqlite`.
  Several become tabs of `open`, or the ranks of one run. Nothing is written beside a file.
- A folder is the timelines in it as ranks of one run; else all of its reports. Quoted patterns are what they match."""

_TAIL = """\
## Nsight Compute's printed pages

- Values are in base units whatever unit and language they were printed in, and as exact as they were printed.
- `--page raw` has all metrics and the GPU, `--page details` has sections and rules; labels of sections are metrics by
  the names of 2020.1 to 2025.3, and labels of other sections stay as they are. Values by instruction, source and
  machine code are in the `.ncu-rep` alone, and what sections show in charts is on no details page.
- Pages of several runs may stand in one file: `cat kernel_*.csv | llmtop report -` shows them together. What the tool
  and the program say meanwhile may stand between.

## Stacks

- Samples of perf weigh what `perf report` counts: time for `cpu-clock` and `task-clock`, else the event. A recording
  (`perf.data`) is read by the perf that is there, which is kept from asking servers for symbols.
- `llmtop report --format folded` and `--format speedscope` write the stacks of any file that has some, and of an
  `.ncu-rep` where the code of its kernels waits, in % of their time.

## Nsight Systems

- An SQLite export is read as it is looked at: what the kernel table and the causes of idle time rest on at once, OS
  calls, scheduling, samples, waits, allocations, calls of libraries and metrics when a view asks for them. The file
  is only read.
- A report (`.nsys-rep`, `.qdrep`) can only be read by nsys. The `.sqlite` beside it is taken where that is not older.
  Else the newest nsys here exports it (looked for on `PATH`, and where NVIDIA's and Debian's packages put it), if it
  is as new as the one that wrote the report; the export lies in `$XDG_CACHE_HOME/llmtop/nsys` (`~/.cache`), where
  exports have 16 GiB together and the least used ones go first. Esc stops it. Without such an nsys the version and
  the command are said.
- A folder of `nsys export --type arrowdir` or `parquetdir` takes pyarrow: `pip install '.[arrow]'`. They do not hold
  the command and the environment.
- NVTX ranges of a domain are named `domain:text`. Kernels of a CUDA graph that was traced node by node are of the
  ranges in which the graph was launched and of those in which they were captured."""


def formats() -> Iterator[str]:
    """The page's lines."""
    yield from _HEAD.format(listed((f"`{kind.suffix}`" for kind in COMPRESSIONS), last="or")).splitlines()
    yield ""
    yield "| files | mostly named | written by | hold |"
    yield "|---|---|---|---|"
    yield from map(_row, parsers())
    yield ""
    yield from _TAIL.splitlines()


def _row(parser: Parser) -> str:
    named = ", ".join(f"`{extension}`" for extension in parser.extensions)
    parts = listed(part for part in Content if part in parser.holds)
    return f"| {parser.title} | {named} | {parser.written_by} | {parts} |"


if __name__ == "__main__":
    print("\n".join(formats()))
