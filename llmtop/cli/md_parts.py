"""Parts of Markdown: text that is no markup, and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.cli.report_rows import cell_texts

if TYPE_CHECKING:
    from llmtop.analysis.views import TableView

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@:])")
"""What Markdown, its HTML, and the sites that render it could take for more than text: names come from outside."""


def escaped(text: str) -> str:
    r"""Text that Markdown leaves alone.

    >>> escaped("f<int>|[x](y)")
    'f\\<int\\>\\|\\[x\\]\\(y\\)'
    """
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def md_row(cells: list[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def md_table(table: TableView, most: int) -> Iterator[str]:
    """The first rows of a table, how many more there are, and an empty line."""
    columns = table.columns
    yield md_row([escaped(column.title) for column in columns])
    yield md_row(["---:" if column.is_number else "---" for column in columns])
    for i in range(min(most, len(table))):
        yield md_row([escaped(text) for text in cell_texts(table.cells(i), columns)])
    if len(table) > most:
        yield f"\n{len(table) - most} more are not shown."
    yield ""
