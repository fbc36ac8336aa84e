"""llmtop: what is this LLM server waiting for, and what should I do about it?"""

__version__ = "0.1.0"

_FOR_SCRIPTS = {
    "FileError": "llmtop.errors",
    "Frame": "llmtop.python.frame",
    "TABLES": "llmtop.python.tables",
    "load": "llmtop.python.loading",
    "table": "llmtop.python.tables",
}
"""Where that which docs/python.md offers stands: its types are in `__init__.pyi`, as an import would load it."""


def __getattr__(name: str) -> object:
    """What scripts use, loaded when it is first asked for."""
    if name not in _FOR_SCRIPTS:
        raise AttributeError(f"module 'llmtop' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_FOR_SCRIPTS[name]), name)


def __dir__() -> list[str]:
    """With what scripts use, so that notebooks complete it."""
    return sorted({*globals(), *_FOR_SCRIPTS})
