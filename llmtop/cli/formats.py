"""docs/formats.md: the files that llmtop opens, as its parsers describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.parsers.base import Content
from llmtop.parsers.compressed import COMPRESSIONS
from llmtop.parsers.registry import PARSERS
from llmtop.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llmtop.parsers.base import Parser

_HEAD = """\
# What llmtop opens

<!-- `make manual` writes this page; it is made of what the parsers say of themselves. -->

`llmtop open` and `llmtop report` tell a file by its content, whatever its name, and read it also where it is packed
({}). What a file lacks is listed with the reason, and with the command that would collect it."""

_TAIL = """\
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
    yield from map(_row, PARSERS)
    yield ""
    yield from _TAIL.splitlines()


def _row(parser: Parser) -> str:
    named = ", ".join(f"`{extension}`" for extension in parser.extensions)
    parts = listed(part for part in Content if part in parser.holds)
    return f"| {parser.title} | {named} | {parser.written_by} | {parts} |"


if __name__ == "__main__":
    print("\n".join(formats()))
