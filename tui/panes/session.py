"""Where a report comes from: facts of the session, faults of the file, what is missing from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType

from llmtop.analysis.kernels.lacking import MissingData, lacking, typed
from llmtop.analysis.pages.report import kernel_time
from llmtop.analysis.timeline.capture import capture_length
from llmtop.frozen import frozen
from llmtop.model import Fact, Issue, Severity, Trace, Unknown
from llmtop.notes import NoteKind
from llmtop.tui.panes.lines import LinesPane
from llmtop.tui.panes.view import NoteWanted
from llmtop.tui.render.lines import fact_lines, line, prose

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.render.look import Look

_ROLES = {Severity.INFO: "dim", Severity.WARNING: "warn", Severity.ERROR: "bad"}


@frozen
class SessionView:
    """A trace, what it does not hold, and the facts to show: made once, as they look at every launch."""

    trace: Trace
    lacking: tuple[MissingData, ...]
    facts: Mapping[str, Fact]


class SessionPane(LinesPane[SessionView]):
    """Facts of the session; secrets were redacted when the file was read."""

    number = 6
    title = "Session"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "note", "note", tooltip="A note on the report: it stands here, and llmtop keeps it"),
    ]

    def action_note(self) -> None:
        """Ask for a note on the report."""
        if isinstance(self._view, SessionView):
            self.post_message(NoteWanted(NoteKind.REPORT, "", "the report", self._view.trace.notes.report))

    def view(self, trace: Trace) -> SessionView | Unknown:
        return SessionView(trace, lacking(trace), session_facts(trace))

    def lines(self, view: SessionView, width: int, look: Look) -> list[Strip]:
        return session_lines(view, width, look)


def session_facts(trace: Trace) -> dict[str, Fact]:
    """The facts to show, the general ones first."""
    origin = trace.origin
    kernels = len(trace.kernels) if trace.kernels is not None else Unknown("this capture has no kernels")
    general: dict[str, Fact] = {
        "file": origin.path or Unknown("not read from a file"),
        **({"note": trace.notes.report} if trace.notes.report else {}),
        "format": origin.kind,
        "tool version": origin.tool_version or Unknown("not written in the file"),
        "GPU": origin.gpu or Unknown("not written in the file"),
        "launches": kernels,
    }
    general |= {name: said for name, said in (("time", kernel_time(trace)), ("length", capture_length(trace))) if said}
    return general | dict(origin.facts)


def session_lines(view: SessionView, width: int, look: Look) -> list[Strip]:
    """Facts, then faults of the data, then what is missing with the command that collects it."""
    trace = view.trace
    facts = view.facts
    strips: list[Strip] = []
    key_width = min(24, width // 3, max(len(key) for key in facts))
    for key, value in facts.items():
        strips += fact_lines(key, value, key_width, width, look)
    if trace.issues:
        strips += [line([("", "text")], width, look), line([("Issues", "title")], width, look)]
        for issue in trace.issues:
            strips += prose(_issue_text(issue), width, look, _ROLES[issue.severity])
    for group in view.lacking:
        strips += [
            line([("", "text")], width, look),
            line([(f"Not in this capture: {group.title}", "title")], width, look),
        ]
        for what, reason in group.parts:
            strips += prose(f"{what}: {reason}", width, look)
        strips += prose(typed(group), width, look, "accent")
    return strips


def _issue_text(issue: Issue) -> str:
    return f"{issue.message}" + (f" ({issue.count} times)" if issue.count > 1 else "")


VIEW: Final = SessionPane
