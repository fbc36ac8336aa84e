"""The command line of Nsight Compute that a report keeps: what is the profiler's, and where the program begins."""

from __future__ import annotations

import re
from dataclasses import replace

from llmtop.frozen import frozen
from llmtop.text import quoted

FLAGS = frozenset(
    (
        "call-stack", "csv", "details-all", "disable-extra-suffixes", "disable-profiler-start-stop", "force-overwrite",
        "forward-signals", "fp", "help", "list-chips", "list-metrics", "list-rules", "list-sections", "list-sets",
        "null-stdin", "nvtx", "open-in-ui", "print-fp", "print-rule-details", "query-metrics", "quiet",
        "section-folder-restore", "support-32bit", "verbose", "version",
    )
)  # fmt: skip
"""Options without a value (`ncu --help` of 2022.3 and 2024.1; what came before or since, by the CLI manuals)."""
VALUED = frozenset(
    (
        "app-replay-buffer", "app-replay-match", "app-replay-mode", "apply-rules", "cache-control", "call-stack-type",
        "check-exit-code", "chips", "clock-control", "config-file", "config-file-path", "devices", "export",
        "filter-mode", "graph-profiling", "hostname", "import", "import-sass", "import-source", "injection-path-32",
        "injection-path-64", "kernel-base", "kernel-id", "kernel-name", "kernel-name-base", "kernel-regex",
        "kernel-regex-base", "kill", "launch-count", "launch-skip", "launch-skip-before-match", "log-file",
        "max-connections", "metrics", "mode", "mps", "mps-num-clients", "mps-timeout", "native-exclude",
        "native-include", "nvtx-exclude", "nvtx-include", "nvtx-push-pop-scope", "page", "pipeline-boost-state",
        "pm-sampling-buffer-size", "pm-sampling-interval", "pm-sampling-max-passes", "port", "preload-library",
        "print-details", "print-kernel-base", "print-metric-attribution", "print-metric-instances", "print-metric-name",
        "print-nvtx-rename", "print-source", "print-summary", "print-units", "profile-from-start", "python-exclude",
        "python-include", "query-metrics-collection", "query-metrics-mode", "range-filter", "range-replay-options",
        "rename-kernels", "rename-kernels-export", "rename-kernels-path", "replay-mode", "resolve-source-file", "rule",
        "sampling-buffer-size", "sampling-interval", "sampling-max-passes", "section", "section-folder",
        "section-folder-recursive", "set", "source-folders", "summary", "target-processes", "target-processes-filter",
        "units", "warp-sampling-buffer-size", "warp-sampling-interval", "warp-sampling-max-passes",
    )
)  # fmt: skip
"""Options with one, from the same places."""
SHORT = {
    "c": "launch-count",
    "f": "force-overwrite",
    "h": "help",
    "i": "import",
    "k": "kernel-name",
    "o": "export",
    "p": "port",
    "s": "launch-skip",
    "v": "version",
}

_LAUNCHES = (
    "target-processes",
    "target-processes-filter",
    "replay-mode",
    "graph-profiling",
    "devices",
    "profile-from-start",
    "disable-profiler-start-stop",
    "nvtx",
    "nvtx-include",
    "nvtx-exclude",
    "nvtx-push-pop-scope",
    "range-filter",
    "native-include",
    "native-exclude",
    "python-include",
    "python-exclude",
)
"""What decides which launches there are to choose from."""
_CONDITIONS = (
    "mps",
    "mps-num-clients",
    "clock-control",
    "cache-control",
    "pipeline-boost-state",
    "preload-library",
    "support-32bit",
    "kill",
)
"""What the numbers depend on."""
_CHOICE = (
    "kernel-name",
    "kernel-name-base",
    "kernel-regex",
    "kernel-regex-base",
    "kernel-id",
    "filter-mode",
    "launch-skip-before-match",
    "launch-skip",
    "launch-count",
)
"""What chooses among them."""
_COUNTED_APART = ("kernel-id", "filter-mode")
"""With these the profiler counts launches in other ways than one after the other."""

_WORD = re.compile(r'"([^"]*)"(?=\s|$)|(\S+)')
"""The profiler writes its words with a space in between; on Windows it quotes those that hold one."""
_PROFILER = re.compile(r"(?i)(?:^|[/\\])(?:ncu|nv-nsight-cu-cli)(?:\.exe)?$")
_INTERPRETER = re.compile(r"(?:^|/)(?:(?:ba|da|z|k)?sh|python[\d.]*)$")
_FUNCTION = re.compile(r"[\w.$]+\Z")
"""A function's name as `--kernel-name` takes it, literally and without surprises for a shell."""


@frozen
class Option:
    """An option by its long name; `value` is None where it has none."""

    name: str
    value: str | None = None

    def __str__(self) -> str:
        return f"--{self.name}" if self.value is None else f"--{self.name} {quoted(self.value)}"


@frozen
class NcuCommand:
    """A command line of Nsight Compute, taken apart.

    Attributes:
        program: What was profiled, as a shell takes it.
    """

    options: tuple[Option, ...]
    program: str

    @property
    def circumstances(self) -> tuple[Option, ...]:
        """What has to be said again for the same launches under the same conditions."""
        return self._only(*_LAUNCHES, *_CONDITIONS)

    @property
    def choice(self) -> tuple[Option, ...]:
        """What chose among the launches."""
        return self._only(*_CHOICE)

    def without(self, name: str) -> NcuCommand:
        """The same without an option."""
        return replace(self, options=tuple(option for option in self.options if option.name != name))

    def only(self, launch: int, function: str, before: int) -> tuple[Option, ...]:
        """What chooses one launch of the report and no other.

        Args:
            launch: Its number in the report, from 0.
            function: The name of its function, without template arguments.
            before: How many launches of a function of that name come before it in the report.
        """
        skipped = self._number("launch-skip")
        if skipped == 0 and _FUNCTION.match(function) and not self._only(*_COUNTED_APART):
            # Counted among its namesakes it is found again even where the launches between them differ from run to run.
            earlier = self._only("launch-skip-before-match")
            return (*earlier, Option("kernel-name", function), *_skip(before), Option("launch-count", "1"))
        filters = tuple(option for option in self.choice if option.name not in ("launch-skip", "launch-count"))
        return (*filters, *_skip(skipped + launch), Option("launch-count", "1"))

    def _only(self, *names: str) -> tuple[Option, ...]:
        return tuple(option for option in self.options if option.name in names)

    def _number(self, name: str) -> int:
        values = [option.value for option in self.options if option.name == name]
        return int(values[-1]) if values and values[-1] is not None and values[-1].isdecimal() else 0


UNKNOWN_PROGRAM = NcuCommand((), "")
"""Of a report that does not say how it was made."""


def parse(command_line: str) -> NcuCommand | None:
    """Take a command line apart; None where an option is not known, so that the program cannot be told.

    >>> parse("/opt/ncu --set full -c 5 -f --nvtx-include decode/ python3 serve.py --port 1").program
    'python3 serve.py --port 1'
    >>> parse("ncu bash -c cd /a; exec ./serve  x").program
    "bash -c 'cd /a; exec ./serve  x'"
    >>> parse("ncu --not-known-yet 5 ./program") is None
    True
    """
    matches = list(_WORD.finditer(command_line))
    words = [match[1] if match[1] is not None else match[2] for match in matches]
    if not words or not _PROFILER.search(words[0]):
        return None
    options: list[Option] = []
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        option = _option(words[at], words[at + 1] if at + 1 < len(words) else None)
        if option is None:
            return None
        takes_next = option.value is not None and not _is_joined(words[at])
        options.append(option)
        at += 2 if takes_next else 1
    at += words[at : at + 1] == ["--"]
    program = words[at:]
    if (code := _code(program)) is not None:  # its words are one
        program[code:] = [command_line[matches[at + code].start() :].rstrip()]
    # "--nvtx-include my range/ ./program" is how a range with a space in it comes down to us: no program is called so.
    is_program = program and not program[0].endswith(("/", "]"))
    return NcuCommand(tuple(options), " ".join(map(quoted, program))) if is_program else None


def _code(program: list[str]) -> int | None:
    """Which word a program begins with that is handed over with -c: all the rest, since a report joins words."""
    is_code = len(program) > 2 and _INTERPRETER.search(program[0]) and program[1] in ("-c", "-lc")
    return 2 if is_code else None


def _option(word: str, following: str | None) -> Option | None:
    """One option; None where it is not known, or its value is not there."""
    name, _, joined = word.removeprefix("--").partition("=") if word.startswith("--") else (word[1:2], "", word[2:])
    full = _full_name(name) if word.startswith("--") else SHORT.get(name)
    if full in FLAGS:
        return Option(full)
    value = joined if _is_joined(word) else following
    return Option(full, value) if full is not None and value is not None else None


def _is_joined(word: str) -> bool:
    """Whether an option with a value has it in the same word."""
    return "=" in word if word.startswith("--") else len(word) > 2


def _full_name(name: str) -> str | None:
    """The option that a name or the beginning of one stands for (the parser of Nsight Compute takes both)."""
    known = FLAGS | VALUED
    if name in known:
        return name
    found = [option for option in known if option.startswith(name)]
    return found[0] if len(found) == 1 else None


def _skip(launches: int) -> tuple[Option, ...]:
    return (Option("launch-skip", str(launches)),) if launches else ()
