"""A key that does nothing where it is pressed says so, and where it does something."""

from __future__ import annotations

from string import ascii_letters
from typing import TYPE_CHECKING, Any, Final

from textual.binding import Binding

from llmtop.model import Unknown
from llmtop.tui.contents import Contents
from llmtop.tui.key_names import key_name
from llmtop.tui.textual_private import bindings_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import App
    from textual.binding import BindingType

    from llmtop.tui.panes.view import View

_OF_ROWS: Final = {"slash": "filter", "less_than_sign": "sort", "greater_than_sign": "sort", "R": "sort"}
"""What every table does with these keys."""


def bind_idle_keys(app: App[Any]) -> None:
    """Give the program, whose keys come last, all that it has not: they get there where nothing has a use for them."""
    known = {binding.key for binding in bindings_of(app)} | {key for key in ascii_letters if hasattr(app, f"key_{key}")}
    for key in {*ascii_letters, *_OF_ROWS} - known:
        app.bind(key, f"idle_key('{key}')", show=False)


def idle_bindings(known: Iterable[BindingType]) -> list[Binding]:
    """The same for a kind of screen below which the program's keys do not get, with these keys of its own."""
    own = {one.key for one in Binding.make_bindings(known)}
    keys = [key for key in (*ascii_letters, *_OF_ROWS) if key not in own]
    return [Binding(key, f"app.idle_key('{key}')", show=False) for key in keys]


def why_idle(key: str, focused: Contents | Unknown, views: Iterable[View[Any] | type[View[Any]]]) -> str:
    """Why a key does nothing.

    Args:
        key: As Textual calls it.
        focused: What has the focus.
        views: All that the screen can show, whether it is there by now or not.
    """
    name = key_name(key)
    if key in _OF_ROWS:
        if isinstance(focused, Unknown):
            return f"{name}: nothing to {_OF_ROWS[key]}: {focused}"
        opens = "; z opens those that it stands for" if focused.table is not None else ""
        return f"{name}: {focused.title} has no rows to {_OF_ROWS[key]}{opens}"
    found = {
        f"{name} works in {view.number or ''} {view.title}: {binding.tooltip}"
        for view in views
        for binding in _keys_of(view)
        if binding.key == key and binding.tooltip
    }
    return "\n".join(sorted(" ".join(one.split()) for one in found)) or f"{name} does nothing here; ? lists what does"


def _keys_of(view: View[Any] | type[View[Any]]) -> Iterable[Binding]:
    """The keys of a view; of one of a file that is not made yet, those that its class declares for files."""
    if not isinstance(view, type):
        return bindings_of(view)
    declared = [one for base in view.__mro__ for one in vars(base).get("BINDINGS", ()) if isinstance(one, Binding)]
    return (one for one in Binding.make_bindings(declared) if one.action.partition("(")[0] not in view.of_live)
