"""Pages of `llmtop diff` as text, Markdown or HTML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmtop.cli.diff_pages import DiffPage


def drawn(pages: Iterator[DiffPage], kind: str, title: str, *, to_terminal: bool) -> Iterator[str]:
    """As text, Markdown or HTML."""
    match kind:
        case "md":
            from llmtop.cli.diff_md import diff_md

            return diff_md(pages)
        case "html":
            from llmtop.cli.diff_html import diff_html

            return diff_html(pages, title)
        case _:
            from llmtop.cli.diff_text import diff_text
            from llmtop.cli.text_layout import terminal_style

            return diff_text(pages, terminal_style(to_terminal=to_terminal))
