"""What llmtop uses of Textual beside its public interface. No other file uses any of it: a test holds that.

Textual may change such parts in any release: names with a leading underscore, what such modules hold, drivers. Each
part here says why it is needed, and what to do once a version of Textual has it no more: most only save time or bytes,
and can go. `make test-textual` runs the screen's tests on the oldest and the newest version that pyproject.toml allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from textual import events
from textual._compositor import ChopsUpdate, Compositor
from textual._context import active_message_pump
from textual._xterm_parser import XTermParser
from textual.app import App, ReturnType
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.widget import Widget

from llmtop.tui.changes import render_changes, sent_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from contextlib import AbstractContextManager

    from rich.console import Console, RenderableType
    from textual.binding import Binding
    from textual.content import Content
    from textual.dom import DOMNode
    from textual.driver import Driver
    from textual.geometry import Region
    from textual.message import Message
    from textual.strip import Strip

    from llmtop.tui.driver import TerminalOutput

S = TypeVar("S")

# -- frames ----------------------------------------------------------------------------------------------------------


class NarrowUpdate(ChopsUpdate):
    """A partial update whose lines begin where the change does.

    Why: Textual's own sends each line from the left edge of the widget on. The newest cell of a graph, at its right
    end, then costs the whole of its line.

    When it breaks: leave it out, here and in `_display`; the screen is the same, and a frame twice the bytes.
    """

    def render_segments(self, console: Console) -> str:
        return "".join(sent_pieces(self.spans, self.chop_ends, self.chops, console))


class SparingCompositor(Compositor):
    """Textual's, with partial updates that ask widgets only for the lines that have changed.

    Why: Textual renders all lines of all widgets in the rectangle around all changes. That was half of its time.

    When it breaks: leave it out; the screen is the same, and costs more of the processor.
    """

    def render_partial_update(self) -> NarrowUpdate | None:
        dirty, self._dirty_regions = self._dirty_regions, set()
        if not dirty:
            return None
        spans = list(self._regions_to_spans(region.intersection(self.size.region) for region in dirty))
        chops = render_changes(spans, self.cuts, self.visible_widgets)
        return NarrowUpdate(chops, spans, [cuts[1:] for cuts in self.cuts])


class SparingScreen(Screen[S]):
    """A screen that draws what has changed, and no more, and when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparingCompositor()

    def send_at_once(self, widgets: Sequence[Widget]) -> bool:
        """Send what widgets have to draw anew, where nothing has to be arranged first and nothing lies above.

        Why: by itself Textual has each widget tell the screen in a message of its own, and the screen wait for a timer.

        When it breaks: return False.

        Returns:
            Whether it was sent; else Textual does so by itself.
        """
        if self.app.screen is not self or self._layout_required or any(one._layout_required for one in widgets):
            return False
        changed = [one for one in widgets if one._repaint_required]
        for one in changed:
            one._repaint_required = False
        self._dirty_widgets.update(one for one in changed if one.display)
        self._on_timer_update()
        return True


def note_changes(widget: Widget, regions: Iterable[Region]) -> None:
    """Note cells of a widget's content that have changed, for the frame that `send_at_once` is about to send.

    Why: `refresh` has the widget's own task look what is to be done, in a message, after each frame: nothing.

    When it breaks: call `refresh`.
    """
    widget._set_dirty(*regions)
    widget._repaint_required = True


def screen_strips(screen: Screen[Any]) -> list[Strip]:
    """The lines that a screen shows.

    Why: `s` writes the screen as text, and Textual itself only as SVG.

    When it breaks: take the text of `App.export_screenshot`.
    """
    return screen._compositor.render_strips()


def forget_lines(widget: Widget) -> None:
    """Let go of what a widget has drawn.

    Why: Textual keeps that of a thousand widgets that are no more: https://github.com/Textualize/textual/issues/6665

    When it breaks: once that is mended, leave it out; until then a screen that was left keeps some megabytes.
    """
    widget._styles_cache.clear()


def title_of(widget: Widget) -> Content | None:
    """What `put_title` has put there, with its colours: the public `border_title` is markup."""
    return widget._border_title


def put_title(widget: Widget, title: Content) -> None:
    """Set a border's title, and draw nothing: who calls this refreshes the cells in which it differs.

    Why: setting `border_title` sends the whole pane again, and some titles hold numbers.

    When it breaks: set `border_title`; the screen is the same, and a frame more bytes.
    """
    widget._border_title = title


# -- keys ------------------------------------------------------------------------------------------------------------


def bindings_of(node: DOMNode) -> Iterable[Binding]:
    """All keys of a part of the screen, in the order in which they were declared.

    Why: `?` and the palette tell of the keys of panes that have not the focus; the public `active_bindings` does not.

    When it breaks: go through `BINDINGS` of all classes that it derives from.
    """
    return (one for keys in node._bindings.key_to_bindings.values() for one in keys)


def leave_out_keys(node: DOMNode, actions: Collection[str]) -> None:
    """Have no keys for these actions (their names) on this part of the screen.

    Why: one view of live and recorded traces has some keys that only one of them has a use for. A `check_action` hides
    them where the focus is, but `?` and the palette tell of the keys of other panes too.

    When it breaks: leave it out, and let the view's `check_action` refuse them; `?` then lists a few too many.
    """
    keys = node._bindings.key_to_bindings.items()
    kept = {key: [one for one in all_ if one.action.partition("(")[0] not in actions] for key, all_ in keys}
    node._bindings.key_to_bindings = {key: bindings for key, bindings in kept.items() if bindings}


class KeyParser(XTermParser):
    """Textual's parser, with Escape always a key of its own.

    Why: over a network Escape and the next key come in one packet, which is what a terminal also sends for Alt and that
    key. llmtop has no key with Alt: read as one, both would be lost, or be what some terminal has on it (Alt+5: an
    infinity sign). And `TerminalDriver` reads keys by itself.

    When it breaks: override what makes keys of a sequence by its new name; `is_amid_a_key` may always be True, and
    `read_keys` then looks ten times a second, as Textual does.
    """

    _ESC: Final = "\x1b"
    _OPENS_A_SEQUENCE: Final = "[O"
    """CSI and SS3 (ECMA-48): what follows Escape where a key is more than one character."""

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if len(sequence) == 2 and sequence[0] == self._ESC and sequence[1] not in self._OPENS_A_SEQUENCE:
            sequence, alt = sequence[1], True
        if alt:
            yield events.Key("escape", self._ESC)
        yield from super()._sequence_to_key_events(sequence)

    @property
    def is_amid_a_key(self) -> bool:
        """Whether what has come may be the beginning of a key."""
        return self._timeout_time is not None


# -- faults ----------------------------------------------------------------------------------------------------------


class GuardedWidget(Widget):
    """A widget that does all it does with messages, events and timers inside of a border.

    Why: Textual would stop the widget's messages, and then the program, with an exception that leaves it.

    When it breaks: override what calls the handlers of a message by its new name. Without it a fault ends the program.
    """

    def border(self) -> AbstractContextManager[None]:
        """Around everything."""
        raise NotImplementedError

    async def _dispatch_message(self, message: Message) -> None:
        with self.border():
            await super()._dispatch_message(message)


class OpenApp(App[ReturnType]):
    """An app that says which driver it has and what ended it, and whose faults and frames can be looked at.

    Why: `App` keeps all of this to itself, and ends with the first exception that any part of it raises.

    When it breaks: the methods with a leading underscore are Textual's, look for what has taken their place; without
    `_display` a frame has more bytes, without the three others a fault ends the program.
    """

    @property
    def driver(self) -> Driver | None:
        """What draws on the terminal, once it does."""
        return self._driver

    @property
    def fault(self) -> Exception | None:
        """What the program ends with."""
        return self._exception

    @property
    def shows_traceback(self) -> bool:
        """Whether it ends with a page about its fault."""
        return True

    def take_fault(self, pump: object, error: Exception) -> bool:
        """Whether somebody takes an error in what a widget does outside of its messages' dispatch.

        Args:
            pump: What was at work: a widget, the app, None.
            error: What it has raised.

        Raises:
            Exception: The program ends with it.
        """
        return False

    def key_failed(self, node: DOMNode | None, error: Exception) -> None:
        """A part of the screen cannot tell whether one of its keys does something."""
        raise error

    def end_with(self, error: Exception) -> None:
        """An error outside of all of Textual's tasks, as one within."""
        self._handle_exception(error)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if isinstance(renderable, ChopsUpdate):  # that of a screen with Textual's own compositor: the palette
            renderable = NarrowUpdate(renderable.chops, renderable.spans, renderable.chop_ends)
        super()._display(screen, renderable)

    def _check_action_state(self, action: str, default_namespace: DOMNode) -> bool | None:
        try:
            return super()._check_action_state(action, default_namespace)
        except Exception as error:  # the border
            self.key_failed(default_namespace, error)
            return False

    def _handle_exception(self, error: Exception) -> None:
        try:
            is_taken = self.take_fault(active_message_pump.get(None), error)
        except Exception as too_many:
            error, is_taken = too_many, False
        if not is_taken:
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        if self.shows_traceback:
            super()._fatal_error()
        else:
            self._close_messages_no_wait()


# -- the terminal ----------------------------------------------------------------------------------------------------


class OpenDriver(LinuxDriver):
    """Textual's driver, with what `TerminalDriver` needs of it.

    Why: Textual waits for ever for a terminal that is gone, and its drivers are not made to be built upon: of these
    methods `start_application_mode`, `disable_input`, `run_input_thread` and `close` may change with any version.

    Its handlers of SIGTSTP and SIGCONT write to the terminal from wherever the signal meets the program, which may hold
    the very lock of the queue that they write to: they then wait for ever. Here they wait for their turn.

    When it breaks: see who calls what in the new `linux_driver.py`; tests/tui/test_driver.py and tests/e2e say what
    must hold.
    """

    @property
    def debugs(self) -> bool:
        """Whether the keys' parser shall say what it reads."""
        return self._debug

    def exit_app(self, return_code: int) -> None:
        """Have the app end; in its own thread."""
        self._app.exit(return_code=return_code)

    def write_to(self, output: TerminalOutput) -> None:
        """Write there instead of to the terminal's own stream."""
        self._file = output  # type: ignore[assignment]  # all of a file that the writer thread uses

    def _sigtstp_application(self, *_: object) -> None:
        self._in_turn(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        self._in_turn(super()._sigcont_application)

    def _in_turn(self, handle: Callable[[], object]) -> None:
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(handle)
        else:  # before the app runs, and after: nothing is under way
            handle()
