"""What the live screen asks of what it shows: a session that looks, or one that plays what another has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from llmtop.model import Target, Trace, What


class Watched(Protocol):
    """Traces, one after another."""

    interval_s: float
    """Between two of them."""
    look_stretch: float
    """How many intervals apart it looks: more than one where looks cost much."""
    on_news: Callable[[], None] | None
    """Called, from any thread, when there is another one."""

    @property
    def target(self) -> Target | None:
        """The server under observation, as it is known now."""
        ...

    def trace(self) -> Trace:
        """What is known now."""
        ...

    def start(self) -> None:
        """Begin to tell of news."""
        ...

    def stop(self) -> None:
        """Tell of nothing any more."""
        ...

    def ask(self, what: What, wanted: bool) -> None:
        """Have taken, or leave, what is taken on demand only."""
        ...
