"""What a number or a word is where it is known, and what stands there where it is not."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import NewType, TypeAlias

from llmtop.frozen import frozen

NS_PER_S = 1_000_000_000


class UnknownKind(StrEnum):
    """What sort of reason it is, of those by which something is decided."""

    OTHER = "other"
    HUNG = "hung"
    """A call into the driver does not return."""
    UNUSED = "unused"
    """It is there, and the server does not use it."""
    NOT_COUNTED = "not counted"
    """Nsight Compute has it, where it is asked for another section."""
    NOT_SHOWN = "not shown"
    """It was collected, and what is opened is a page of it that leaves it out."""
    NOT_ASKED = "not asked"
    """The file has it, outside of what was to be looked at."""
    PASSING = "passing"
    """It comes with time, or is asked for by who looks live: of a recording its remedy is of no use."""
    MISWRITTEN = "miswritten"
    """Whatever it is asked of, it has no answer: what was asked is written wrongly."""
    FAILED = "failed"
    """The program failed: no profiler tells what it would have."""


@frozen
class Unknown:
    """Stands where a value would: why it is not known, and what would make it so.

    Attributes:
        reason: Half a sentence, without a full stop: "GPM needs Hopper or newer".
        remedy: What the user can do, as a command where there is one; empty when nothing helps.
        general: The reason without what it says of this one alone, for a line about many; empty where it says nothing
            of that sort.
    """

    reason: str
    remedy: str = ""
    kind: UnknownKind = UnknownKind.OTHER
    general: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.remedy})" if self.remedy else self.reason

    @property
    def recorded(self) -> Unknown:
        """The same to who looks at a recording: without a remedy for who looked at the time."""
        return replace(self, remedy="") if self.remedy and self.kind is UnknownKind.PASSING else self


Value: TypeAlias = "float | int | str"
Fact: TypeAlias = "Value | Unknown"


@frozen
class Quantity:
    """A value with its unit and its source, as a report or a pane shows it."""

    value: Value
    unit: str = ""
    source: str = ""


What = NewType("What", str)
"""What is missing: made and read by `llmtop.whats`."""


@frozen
class Missing:
    """Something that could not be had."""

    what: What
    why: Unknown

    @property
    def document(self) -> dict[str, str]:
        """As JSON documents have it."""
        return {"what": self.what, "reason": self.why.reason, "remedy": self.why.remedy}
