"""Nobody asked for work: the launching thread waited for input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmtop.analysis.idle_time.account import AFTER, BEFORE
from llmtop.analysis.idle_time.causes import Cause
from llmtop.analysis.rules import idle
from llmtop.model import Severity

if TYPE_CHECKING:
    from llmtop.model import Finding, Trace

id = "no-work"
summary = "The GPU idles because the launching thread waits for input."
source = idle.SOURCE

_ACTION = (
    "send more requests at once, if there are more; if requests were waiting meanwhile, the process that hands "
    "them over (scheduler, tokenizer, data loader) is late: profile that one"
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding, of the GPU that loses most to it."""
    lost = idle.stake(trace, lambda part: part.cause is Cause.NO_WORK and part.name not in (BEFORE, AFTER))
    if lost is not None:
        yield idle.finding(
            trace,
            lost,
            rule=id,
            message=f"no work was asked for: the launching thread waits for input ({lost.parts[0].name})",
            action=_ACTION,
            severity=Severity.INFO,
        )
