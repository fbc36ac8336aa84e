"""Where in its code a kernel waits: source, PTX and instructions side by side, with the waiting of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content

from llmtop.analysis.kernels.code_sides import CodePlace, CodeSide, CodeSides
from llmtop.analysis.kernels.source import KernelSource, kernel_source, sampled_launches, why_no_code
from llmtop.frozen import frozen
from llmtop.model import Trace, Unknown
from llmtop.text import clean
from llmtop.tui.aside import analyse_on_thread
from llmtop.tui.panes.lines import SearchedPane
from llmtop.tui.panes.one_kernel import KernelChoice, OneKernelPane
from llmtop.tui.render.lines import explain
from llmtop.tui.render.source import CodeScreen, draw_code

if TYPE_CHECKING:
    from textual.strip import Strip

    from llmtop.tui.aside import Analysed
    from llmtop.tui.render.look import Look

_DISASSEMBLING = Unknown("disassembling")
_REMEDY = "Session has the command that does"


@frozen
class SourceView(KernelChoice):
    """One of the kernels, with its code, or why there is none."""

    source: KernelSource | Unknown


class SourcePane(OneKernelPane[SourceView], SearchedPane[SourceView]):
    """The code of one kernel; the cursor is in one of its lists, and the others show the rows that belong to it."""

    number = 8
    title = "Source"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "side(1)", "source/PTX/SASS", key_display="← →", tooltip="Source, PTX or instructions"),
        Binding("left", "side(-1)", "side", show=False, tooltip="Source, PTX or instructions"),
        Binding("h", "hottest", "hottest", tooltip="The row that waits most"),
        Binding(
            "n", "next_hot(1)", "next hot", key_display="n N", tooltip="The row that waits next most, or the match"
        ),
        Binding("N", "next_hot(-1)", "last hot", show=False, tooltip="The row that waits more, or the match before"),
        Binding("f", "reason", "reason", tooltip="Only the waiting for one reason, then the next one, then all"),
        Binding("o", "file", "file", tooltip="Another file of the kernel's source"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.side = CodeSide.SOURCE
        self.reason = ""
        self._sides: CodeSides | None = None

    @classmethod
    def why_not(cls, trace: Trace) -> Unknown | None:
        return why_no_code(trace, _REMEDY)

    def view(self, trace: Trace) -> SourceView | Unknown:
        launches = sampled_launches(trace)
        if not launches:
            return self.why_not(trace) or Unknown("the report has no kernels")
        choice = self.chosen(trace, _first_sampled(trace, launches) if self._wanted is None else 0)
        source = kernel_source(trace, choice.launch)
        if not isinstance(source, Unknown):
            _prepare(source)
        return SourceView(choice.launches, choice.at, choice.name, source)

    def on_analysed(self, message: Analysed) -> None:
        message.prevent_default()  # Textual would call the base's too
        if isinstance(message.of, KernelSource):
            self._take_assembly(message.of, message.result)
            return
        is_new = isinstance(message.result, SourceView) and not self.is_late(message.result)
        if is_new and not isinstance(message.result.source, Unknown):
            self._begin(message.result.source)
        super().on_analysed(message)

    def _begin(self, source: KernelSource) -> None:
        """Stand at the hottest row of a kernel, and have its instructions disassembled meanwhile."""
        sides = CodeSides(source, source.files[0] if source.files else "", _DISASSEMBLING)
        self.side = self.side if sides.count(self.side) else CodeSide.SASS
        self.reason = self.reason if self.reason in source.reasons else ""
        place = self._hottest(sides)
        self._sides = CodeSides(source, place.file, _DISASSEMBLING)
        self.at = place.row
        analyse_on_thread(self, source, _assembly)

    def _take_assembly(self, source: KernelSource, texts: Mapping[int, str] | Unknown | Exception) -> None:
        if self._sides is None or self._sides.source is not source:
            return
        if isinstance(texts, Exception):
            texts = Unknown(f"disassembling failed: {clean(str(texts))}")
        self._sides = CodeSides(source, self._sides.file, texts)
        self.redraw()

    def subtitle(self, view: SourceView) -> Content:
        parts = [view.said]
        if not isinstance(view.source, Unknown) and view.source.few:
            parts.append(view.source.few)
        if self.reason:
            parts.append(f"only {self.reason}")
        if self.search or self.is_searching:
            found = "" if not self.search or self._matches() else "not found"
            parts.append(self.said_search(found).plain)
        return Content("  ".join(parts))

    def draw(self, view: SourceView, width: int, height: int, look: Look) -> list[Strip]:
        sides = self._sides
        if isinstance(view.source, Unknown) or sides is None:
            return explain(view.source if isinstance(view.source, Unknown) else _DISASSEMBLING, width, height, look)
        return draw_code(CodeScreen(sides, self._place(sides), self.reason), width, height, look)

    def _place(self, sides: CodeSides) -> CodePlace:
        return CodePlace(self.side, sides.file, min(self.at, max(0, sides.count(self.side) - 1)))

    def count(self) -> int:
        return 1 if self._sides is None else max(1, self._sides.count(self.side))

    # -- places -------------------------------------------------------------------------------------------------------

    def go_to(self, place: CodePlace) -> None:
        """Show a row, in its file."""
        sides = self._sides
        if sides is not None:
            self.side = place.side
            self._show_file(place.file)
            self._go(place.row)

    def _show_file(self, file: str) -> None:
        if self._sides is not None and file != self._sides.file:
            self._sides = CodeSides(self._sides.source, file, self._sides.assembly)

    def _go(self, at: int) -> None:
        """The file follows the cursor where that is among the instructions."""
        super()._go(at)
        sides = self._sides
        if sides is not None and self.side is not CodeSide.SOURCE:
            code = sides.source.code
            files = [code.file_id[i] for i in sides.instructions(self.side, self.at) if code.file_id[i] >= 0]
            if files and code.files[files[0]] != sides.file:
                self._show_file(code.files[files[0]])
                self.redraw()

    def action_hottest(self) -> None:
        """Go to the row that waits most; to the first of the kernel where nothing was sampled."""
        if self._sides is not None:
            self.go_to(self._hottest(self._sides))

    def _hottest(self, sides: CodeSides) -> CodePlace:
        hot = sides.hot(self.side, self.reason)
        rows = sides.rows(self.side, range(len(sides.source.code)))
        return hot[0] if hot else CodePlace(self.side, sides.file, rows[0] if rows else 0)

    def action_next_hot(self, step: int) -> None:
        """Go to the row that waits next most, or the one before; while a text is looked for, to where it stands."""
        if self._sides is None:
            return
        if self.search:
            self._go_to_match(step)
            return
        hot = self._sides.hot(self.side, self.reason)
        here = self._place(self._sides)
        if hot:
            self.go_to(hot[(hot.index(here) + step) % len(hot)] if here in hot else hot[0])

    def action_side(self, step: int) -> None:
        """Take the cursor to the list beside this one: of the rows that belong to this one to the hottest."""
        sides = self._sides
        if sides is None:
            return
        order = list(CodeSide)
        side = order[(order.index(self.side) + step) % len(order)]
        rows = sides.rows(side, sides.instructions(self.side, self._place(sides).row))
        if rows:
            self.go_to(CodePlace(side, sides.file, max(rows, key=lambda row: sides.waiting(side, row, self.reason))))
        else:
            self.side = side
            self.action_hottest()

    def action_reason(self) -> None:
        """Count the next reason alone, the most waited for first; after the last one all again."""
        if self._sides is None:
            return
        reasons = ("", *self._sides.source.reasons)
        self.reason = reasons[(reasons.index(self.reason) + 1) % len(reasons)]
        self.action_hottest()

    def leave_kernel(self) -> None:
        """Its code goes with it."""
        self._sides = None

    def action_file(self) -> None:
        """Show the next file of the source, at the row of it that waits most."""
        if self._sides is None or not self._sides.source.files:
            return
        files = self._sides.source.files
        file = files[(files.index(self._sides.file) + 1) % len(files)]
        places = [one for one in self._sides.hot(CodeSide.SOURCE, self.reason) if one.file == file]
        self.go_to(places[0] if places else CodePlace(CodeSide.SOURCE, file, 0))

    # -- search -------------------------------------------------------------------------------------------------------

    def look_for(self, text: str) -> None:
        """Go to the first row from here on that has the text."""
        super().look_for(text)
        matches = self._matches()
        if matches:
            self._go(next((row for row in matches if row >= self.at), matches[0]))

    def _matches(self) -> list[int]:
        """The rows of the side with the cursor that have what is looked for."""
        sides, wanted = self._sides, self.search.casefold()
        if sides is None or not wanted:
            return []
        rows = range(sides.count(self.side))
        return [row for row in rows if wanted in sides.row_text(self.side, row).casefold()]

    def _go_to_match(self, step: int) -> None:
        matches = self._matches()
        if matches:
            after = [row for row in matches if row > self.at] if step > 0 else [row for row in matches if row < self.at]
            self._go((after[0] if step > 0 else after[-1]) if after else matches[0 if step > 0 else -1])


def _first_sampled(trace: Trace, launches: tuple[int, ...]) -> int:
    """The first kernel of which is known where it waits, among those with the most time."""
    for at, launch in enumerate(launches[:_ASKED]):
        source = kernel_source(trace, launch)
        if not isinstance(source, Unknown) and source.why_no_samples is None:
            return at
    return 0


_ASKED = 5


def _assembly(source: KernelSource) -> Mapping[int, str] | Unknown:
    return source.assembly


def _prepare(source: KernelSource) -> None:
    """Work out on a thread what the first picture needs."""
    source.instructions, source.ptx_lines  # noqa: B018
    if source.files:
        source.text(source.files[0])


VIEW: Final = SourcePane
