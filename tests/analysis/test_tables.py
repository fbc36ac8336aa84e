"""Rows that are few enough to hold: sorted, searched, fitted to their texts, and as text."""

from __future__ import annotations

import csv

from llmtop.analysis.tables import RowTable, csv_of, fitted
from llmtop.analysis.views import Column
from llmtop.model import Unknown

COLUMNS = (
    Column("name", "kernel", width=20),
    Column("time", "time", "ns", width=9),
    Column("calls", "calls", "1"),
    Column("note", "note"),
)
LOST = Unknown("lost", "run again")
ROWS = RowTable(
    COLUMNS,
    (("a, b", 1500.0, 3, "x"), ("c", LOST, float("nan"), None), ("B", 0.0, 3, "Late X")),
    keys=(1, 2, 3),
    widest=(4, 6, 3, 6),
)


def test_rows_as_csv_have_units_numbers_and_reasons() -> None:
    """What is not known is empty, be it unknown, absent or no number; a zero is not."""
    assert list(csv.reader(csv_of(ROWS))) == [
        ["kernel", "time (ns)", "calls", "note", "missing"],
        ["a, b", "1500.0", "3", "x", ""],
        ["c", "", "", "", "time: lost (run again)"],
        ["B", "0.0", "3", "Late X", ""],
    ]


def test_rows_in_another_order_keep_their_keys_and_what_is_not_known_stays_last() -> None:
    for descending, keys in ((False, (3, 1, 2)), (True, (1, 3, 2))):
        assert ROWS.sorted_by("time", descending=descending).keys == keys
    by_name = ROWS.sorted_by("name", descending=False)
    assert ([by_name.key(i) for i in range(3)], by_name.cells(1)[0]) == ([1, 3, 2], "B")
    assert ROWS.sorted_by("note", descending=True).keys == (1, 3, 2)


def test_only_texts_are_searched() -> None:
    """A number is not found by how it is written, nor what is not known by its reason."""
    found = {text: ROWS.filtered(text).keys for text in ("x", "LATE", "1500", "lost", "none", "3", "")}
    assert found == {"x": (1, 3), "LATE": (3,), "1500": (), "lost": (), "none": (), "3": (1, 3), "": (1, 2, 3)}


def test_columns_of_text_are_as_wide_as_their_longest_or_their_title_with_its_arrow() -> None:
    """Columns of numbers keep their widths: what stands in them changes."""
    columns, widest = fitted(COLUMNS, [row[:4] for row in ROWS.rows[::2]])
    assert ([one.width for one in columns], widest) == ([len("kernel") + 1, 9, 0, 0], (4, 6, 1, 6))
    columns, widest = fitted(COLUMNS, [("a" * 19, 1.0, 1, ""), ("b" * 30, 1.0, 1, "")])
    assert ([one.width for one in columns], widest[0]) == ([20, 9, 0, 0], 30)
    assert fitted(COLUMNS[:1], [("a" * 12,)])[0][0].width == 12
    assert fitted(COLUMNS[:1], [])[1] == (0,)
