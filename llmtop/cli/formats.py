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


def formats() -> Iterator[str]:
    """The page's lines."""
    yield from _HEAD.format(listed((f"`{kind.suffix}`" for kind in COMPRESSIONS), last="or")).splitlines()
    yield ""
    yield "| files | mostly named | written by | hold |"
    yield "|---|---|---|---|"
    yield from map(_row, PARSERS)


def _row(parser: Parser) -> str:
    named = ", ".join(f"`{extension}`" for extension in parser.extensions)
    parts = listed(part for part in Content if part in parser.holds)
    return f"| {parser.title} | {named} | {parser.written_by} | {parts} |"


if __name__ == "__main__":
    print("\n".join(formats()))
