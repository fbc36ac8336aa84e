"""Only one file uses what Textual does not promise to keep."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import textual
from textual.message_pump import MessagePump
from textual.widget import Widget

import llmtop.tui
from llmtop.tui import textual_private

if TYPE_CHECKING:
    from collections.abc import Iterable

LLMTOP = Path(llmtop.__file__).parent
ONE_FILE = Path(textual_private.__file__).resolve()


def other_files() -> list[str]:
    """All that may know Textual (a contract of import-linter), but the one."""
    paths = {path.resolve() for folder in ("tui", "cli") for path in (LLMTOP / folder).rglob("*.py")} - {ONE_FILE}
    assert len(paths) > 70
    return [path.read_text(encoding="utf-8") for path in sorted(paths)]


PUBLIC = ("__", "_replace", "_asdict")
"""Python's own, those of named tuples among them."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith(PUBLIC) and name != "_"


def attributes(tree: ast.AST) -> list[ast.Attribute]:
    return [one for one in ast.walk(tree) if isinstance(one, ast.Attribute) and is_private(one.attr)]


def is_of_itself(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id in ("self", "cls")


def made_in(tree: ast.AST) -> set[str]:
    """The private names that a piece of code makes for itself: not those that it sets of other objects."""
    functions = {one.name for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
    fields = {one.attr for one in attributes(tree) if is_of_itself(one) and isinstance(one.ctx, ast.Store)}
    variables = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return {name for name in functions | fields | variables if is_private(name)}


def private_imports(tree: ast.AST) -> set[str]:
    """What of Textual's private modules, and of its drivers, is imported."""
    modules = {one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    modules |= {name.name for one in ast.walk(tree) if isinstance(one, ast.Import) for name in one.names}
    return {module for module in modules if re.match(r"textual\.(.*\._|_|drivers)", module)}


def private_uses(sources: Iterable[str]) -> list[str]:
    """What of Textual's private parts some files import, or ask for of an object."""
    trees = [ast.parse(source) for source in sources]
    ours = set().union(*(made_in(tree) for tree in trees))
    asked_for = {one.attr for tree in trees for one in attributes(tree)} - ours
    return sorted(set().union(*(private_imports(tree) for tree in trees)) | asked_for & textuals_names())


@cache
def textuals_names() -> set[str]:
    files = Path(textual.__file__).parent.rglob("*.py")
    return {name for path in files for name in re.findall(r"\b_[a-z]\w*", path.read_text(encoding="utf-8"))}


def test_no_other_file_uses_private_parts() -> None:
    assert private_uses(other_files()) == []


def test_such_a_use_would_be_seen() -> None:
    lines = [
        "from textual._compositor import Compositor",
        "import textual.drivers.headless_driver",
        "a._styles_cache = 1",
    ]
    assert private_uses(lines) == ["_styles_cache", "textual._compositor", "textual.drivers.headless_driver"]


class Bare(Widget):
    """What Textual makes of a class by itself."""


@cache
def names_of(owner: type) -> set[str]:
    """The private names that a class makes, without those that Textual gives every class."""
    made = made_in(ast.parse(dedent(inspect.getsource(owner)))) | {name for name in vars(owner) if is_private(name)}
    return {name for name in made - set(vars(Bare)) if not name.startswith("_default_")}  # a reactive attribute's


def shadowed(owner: type) -> dict[str, set[str]]:
    bases = [base for base in owner.__mro__ if base.__module__.partition(".")[0] == "textual"]
    found = {base.__name__: names_of(owner) & names_of(base) for base in bases}
    return {base: names for base, names in found.items() if names}


def test_no_class_has_a_private_name_of_textuals_by_accident() -> None:
    """It would take the place of Textual's own, and no type checker sees that."""
    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(llmtop.tui.__path__, "llmtop.tui.")]
    classes = {
        owner
        for module in modules
        for owner in vars(module).values()
        if isinstance(owner, type) and issubclass(owner, MessagePump) and owner.__module__.startswith("llmtop.")
    }
    assert len(classes) > 40
    said = {owner.__name__: shadowed(owner) for owner in classes if owner.__module__ != textual_private.__name__}
    assert {name: found for name, found in said.items() if found} == {}
    assert "_display" in shadowed(textual_private.OpenApp)["App"]
