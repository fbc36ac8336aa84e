"""What a recording has that is nobody else's business, and texts without it.

Two steps, as what one row tells has to go from rows before it too: `Secrets.learn` sees all documents, then
`Secrets.without` gives each of them back. What is looked for by its place is listed in `_BY_FIELD`; what has a form of
its own is found by that. `shared_copy` then searches the copy for all that was taken out (`standing`).
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from llmtop.facts import EndedFact, GpuFact, NeighbourFact, ProcessFact, ServerFact, TargetFact
from llmtop.frozen import frozen
from llmtop.model import TrackKind
from llmtop.recording.standing import TELLING, sought_text
from llmtop.text import REDACTED, group_name, redact
from llmtop.vocabulary import parted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

TAKEN: Final = {"reason": "taken out by llmtop share"}
"""What stands for a fact that was taken out: an Unknown."""
_CUT: Final = "…"
_COMMAND: Final = "COMMAND"
_OPTION: Final = "the value of an option"
_REMEDY: Final = "remedy"
"""The field of an unknown that says what to do, often a command."""
_CONFIG: Final = "config"
"""The field with what a model's own files say, whose names are theirs too."""
_LEAST: Final = 2
"""Characters of what is looked for wherever it stands."""
_KEY_SHOWN: Final = 4
"""Characters of a key: enough for its owner to know it by."""


class SecretKind(StrEnum):
    """What sort of thing is taken out."""

    KEY = "keys and tokens"
    COMMAND = "command lines"
    LOG = "lines of logs"
    FOLDER = "folders"
    USER = "user names"
    HOST = "host names"
    ADDRESS = "addresses"
    MODEL = "model names"
    GPU = "ids of GPUs"
    PROGRAM = "other programs"


ASKED_FOR: Final = frozenset({SecretKind.MODEL, SecretKind.GPU, SecretKind.PROGRAM})
"""What stays unless everything is to be anonymous."""
_MAY_BE_WORDS: Final = ASKED_FOR | {SecretKind.LOG, SecretKind.FOLDER, SecretKind.KEY}
_BY_FIELD: Final[Mapping[str, SecretKind]] = {
    ProcessFact.COMMAND: SecretKind.COMMAND,
    TargetFact.COMMAND: SecretKind.COMMAND,
    EndedFact.LOG_ERROR: SecretKind.LOG,
    EndedFact.LOG_END: SecretKind.LOG,
    EndedFact.LOG_COMMAND: SecretKind.LOG,
    EndedFact.WORDS: SecretKind.LOG,
    ProcessFact.DIRECTORY: SecretKind.FOLDER,
    ProcessFact.CGROUP: SecretKind.FOLDER,
    ProcessFact.CGROUP_FOLDER: SecretKind.FOLDER,
    NeighbourFact.CGROUP: SecretKind.FOLDER,
    "host": SecretKind.HOST,
    ServerFact.MODEL: SecretKind.MODEL,
    TargetFact.MODEL_PATH: SecretKind.MODEL,
    "model_name": SecretKind.MODEL,
    "served_model_name": SecretKind.MODEL,
    GpuFact.UUID: SecretKind.GPU,
    GpuFact.PCI_BUS_ID: SecretKind.GPU,
}
_WHOLE: Final = frozenset({SecretKind.COMMAND, SecretKind.LOG, SecretKind.FOLDER})
"""Facts that go as a whole; of the others each value has a name of its own, so that what is one stays one."""
_NAMES: Final[Mapping[SecretKind, str]] = {
    SecretKind.USER: "user",
    SecretKind.HOST: "host",
    SecretKind.ADDRESS: "address",
    SecretKind.MODEL: "model",
    SecretKind.GPU: "gpu-id",
    SecretKind.PROGRAM: "program",
}
STAND_IN: Final = re.compile(
    rf"(?:{'|'.join(_NAMES.values())})-\d+|{_COMMAND}|{_CUT}|{re.escape(REDACTED)}|{TAKEN['reason']}"
)
"""What stands for what was taken out."""
_BY_TRACK: Final = {TrackKind.HOST.value: SecretKind.HOST, TrackKind.NEIGHBOUR.value: SecretKind.PROGRAM}
"""By the kind of a track, what its name is."""
_OF_THE_SERVER: Final = (TrackKind.PROCESS.value, TrackKind.THREAD.value)
_KEPT: Final = frozenset(
    {"id", "kind", "track", "parent", "unit", "rule", "severity", "what", "sources", "gone", "llmtop"}
)
"""Fields with llmtop's own words and numbers: with another one nothing could be read any more."""

_HOME: Final = re.compile(r"/(?:home|Users)/([^/\s'\":,;()]+)")
_NOBODY: Final = frozenset({"user", "ubuntu", "debian", "admin", "ec2-user", "runner", "app"})
"""Accounts that are no person's."""
_PATH: Final = re.compile(r"(?<![\w.:/>…-])(?:~|\.\.?)?(?:/[^/\s'\":,;()<>|=]+)+/([^/\s'\":,;()<>|=]*)")
_SYSTEM: Final = re.compile(r"/(?:proc|sys|dev|usr/bin|usr/sbin|usr/lib\w*|bin|sbin|lib\w*|run|boot)/")
"""Paths that all machines have."""
_HIDDEN_VALUE: Final = re.compile(rf" --?\w[\w-]*[ =]{_CUT}(?:/[^\s'\":,;()<>|=]*)?(?=\s|$)")
_HIDDEN_FOLDER: Final = re.compile(rf"{_CUT}/")
"""What is left of a path: of the value of an option, and before the name of a file."""
_URL_HOST: Final = re.compile(r"(?<=://)(?:\[[0-9a-fA-F:.]+\]|\w[\w.-]*)")
_DUMP_HOST: Final = re.compile(r"(?<=\bcore_\d{10}_)[^/\s]+(?=_\d{1,10}\.nvcudmp)")
"""In the name that the driver gives a GPU's core dump, where no blank or dot sets it apart."""
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\w)")
_IPV6: Final = re.compile(
    r"(?<![\w:])(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3})(?::[0-9a-f]{0,4}){2,7}(?![\w:])", re.IGNORECASE
)
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NOBODYS: Final = re.compile(r"(?:localhost|127\.[\d.]+|0\.0\.0\.0|\[?::1?\]?|PORT|HOST)(?::\d+)?\Z")
"""Addresses that every machine has."""
_TOKENS: Final = re.compile(
    r"\b(?:hf|sk|ghp|gho|ghs|glpat|xox[abp]|nvapi|pypi)[-_][\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{8,}\.[\w.-]+"
    r"|(?<=earer )(?!\[)\S{6,}|(?<=://)[^/\s@]+(?=@)"
)


@frozen
class Removal:
    """One thing that is taken out.

    Attributes:
        what: As it stands in the recording; of a key how it begins.
        instead: What stands there then; empty where nothing does.
        is_word: It says nothing by itself ("/", a program "bash", a model "small"): taken out where a field or form of
            words tells that it is a name, and nowhere else.
        places: In how many texts.
    """

    kind: SecretKind
    what: str
    instead: str
    is_word: bool
    places: int


class Secrets:
    """Finds what is to be taken out, and takes it out.

    Args:
        is_anonymous: Take out too what only tells whose server it is: models, other programs, ids of GPUs.
    """

    def __init__(self, *, is_anonymous: bool = False) -> None:
        self._out = frozenset(SecretKind) if is_anonymous else frozenset(SecretKind) - ASKED_FOR
        self._known: dict[str, tuple[SecretKind, str]] = {}
        """What is looked for wherever it stands, and what it becomes."""
        self._own: set[str] = set()
        """What the server's own processes are called."""
        self._pattern: re.Pattern[str] | None = None
        self._seen: Counter[tuple[SecretKind, str, str, bool]] = Counter()
        self._taken: dict[str, tuple[SecretKind, str]] = {}
        """As they stand in the recording, keys too, and what stands there instead."""

    @property
    def removals(self) -> tuple[Removal, ...]:
        """What has been taken out until now, by kind."""
        order = list(SecretKind)
        found = sorted(self._seen.items(), key=lambda one: (order.index(one[0][0]), -one[1], one[0]))
        return tuple(Removal(*what, places) for what, places in found)

    @property
    def taken(self) -> frozenset[str]:
        """What may stand nowhere: all that has been taken out or is known to be secret, but words."""
        found = (self._known | self._taken).items()
        return frozenset(what for what, (kind, instead) in found if what != instead and _is_telling(kind, what))

    def seek(self, taken: Iterable[str]) -> None:
        """Look for these wherever they stand from now on, whatever they were known by; count anew."""
        self._known = {what: (self._taken | self._known)[what] for what in taken} | self._known
        self._pattern = None
        self._seen.clear()
        self._taken.clear()

    # -- learning ----------------------------------------------------------------------------------------------

    def learn(self, document: Any) -> None:
        """Note what a document tells to be secret."""
        for name, value in _texts(document):
            for user in _HOME.findall(value):
                if user not in _NOBODY:
                    self._note(SecretKind.USER, user)
            kind = _BY_FIELD.get(name)
            if kind is not None:
                self._note(kind, value)
            if name == ProcessFact.CGROUP:  # findings have it as people call it
                self._note(SecretKind.FOLDER, group_name(value))
        for track in _tracks(document):
            if (kind := _kind_of_name(track)) is not None:
                self._note(kind, track["name"])
            for name in _names_of_own(track):
                self._keep(name)

    def _keep(self, name: str) -> None:
        """What rules know the server's processes by stays: of another program that is called so it tells nothing."""
        self._own.add(name)
        if self._known.get(name, ("",))[0] is SecretKind.PROGRAM:
            self._pattern = None
            del self._known[name]

    def _note(self, kind: SecretKind, value: str) -> None:
        if kind not in self._out or len(value) < _LEAST or value in self._known or _is_nobodys(value):
            return
        if kind is SecretKind.PROGRAM and value in self._own:
            return
        self._pattern = None
        self._known[value] = kind, self._name(kind)
        short = value.partition(".")[0] if kind is SecretKind.HOST else value.rpartition("/")[2]
        if kind in (SecretKind.HOST, SecretKind.MODEL) and short != value and len(short) >= _LEAST:
            self._known.setdefault(short, self._known[value])

    def _name(self, kind: SecretKind) -> str:
        if kind is SecretKind.COMMAND:
            return _COMMAND
        if kind in _WHOLE:
            return _CUT
        return f"{_NAMES[kind]}-{1 + len({instead for of, instead in self._known.values() if of is kind})}"

    # -- taking out --------------------------------------------------------------------------------------------

    def without(self, document: Any, name: str = "") -> Any:
        """The same document without what is secret; `name` is that of the field in which it stands."""
        if name in _KEPT and not isinstance(document, dict):
            return document
        if name == "metric" and isinstance(document, str):
            metric, label = parted(document)  # a label may be the name of a program
            return f"{metric}{document[len(metric) : len(metric) + 1]}{self.text(label)}"
        if name == _REMEDY and isinstance(document, str):
            return _runnable(self.text(document))
        if isinstance(document, str):
            return self._field(document, _BY_FIELD.get(name))
        if isinstance(document, dict):
            kind = _kind_of_name(document)
            return {
                self.text(key) if name == _CONFIG else key: self._field(value, kind)
                if key == "name" and kind is not None
                else self.without(value, key)
                for key, value in document.items()
            }
        if isinstance(document, list):
            return [self.without(one, name) for one in document]
        return document

    def _field(self, value: str, kind: SecretKind | None) -> Any:
        """A text that is of some kind by its place."""
        if kind in _WHOLE and kind in self._out and value:
            self._count(kind, value, "")
            return TAKEN
        if kind is not None and value in self._known:
            return self._instead_of(value)
        return self.text(value)

    def text(self, text: str) -> str:
        """A text without what is secret."""
        hidden = redact(text)
        if hidden != text:
            self._count(SecretKind.KEY, _OPTION, REDACTED)
            self._taken |= dict.fromkeys(_redacted(text, hidden), (SecretKind.KEY, REDACTED))
        hidden = _TOKENS.sub(self._replacing(SecretKind.KEY, lambda _: REDACTED), hidden)
        hidden = self._compiled().sub(lambda found: self._instead_of(found[0]), hidden)
        hidden = _PATH.sub(self._replacing(SecretKind.FOLDER, _shortened), hidden)
        hidden = _DUMP_HOST.sub(self._replacing(SecretKind.HOST, self._host), hidden)
        hidden = _MAIL.sub(self._replacing(SecretKind.ADDRESS, self._address), hidden)
        for pattern in (_URL_HOST, _IPV4, _IPV6):
            hidden = pattern.sub(self._replacing(SecretKind.ADDRESS, self._address), hidden)
        return hidden

    def _compiled(self) -> re.Pattern[str]:
        if self._pattern is None:
            longest_first = sorted(self._known, key=len, reverse=True)
            parts = (_sought(self._known[value][0], value) for value in longest_first)
            self._pattern = re.compile("|".join(filter(None, parts)) or r"(?!)")
        return self._pattern

    def _instead_of(self, known: str) -> str:
        kind, instead = self._known[known]
        self._count(kind, known, instead)
        return instead

    def _replacing(self, kind: SecretKind, of: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
        """What replaces a match, and counts it where that is something else."""

        def replaced(found: re.Match[str]) -> str:
            instead = of(found[0])
            if instead != found[0]:
                self._count(kind, found[0], instead)
            return instead

        return replaced

    def _address(self, address: str) -> str:
        if _NOBODYS.fullmatch(address) or address.startswith(f"{_NAMES[SecretKind.ADDRESS]}-"):
            return address
        if any(address == instead for _, instead in self._known.values()):
            return address
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = SecretKind.ADDRESS, self._name(SecretKind.ADDRESS)
        return known[1]

    def _host(self, host: str) -> str:
        if host.startswith(f"{_NAMES[SecretKind.HOST]}-"):
            return host
        return self._known.setdefault(host, (SecretKind.HOST, self._name(SecretKind.HOST)))[1]

    def _count(self, kind: SecretKind, what: str, instead: str) -> None:
        if what == instead:  # of a copy that has been made already
            return
        is_key = kind is SecretKind.KEY and what != _OPTION
        self._seen[kind, f"{what[:_KEY_SHOWN]}{_CUT}" if is_key else what, instead, not _is_telling(kind, what)] += 1
        if what != _OPTION:
            self._taken[what] = kind, instead or self._name(kind)


def _is_nobodys(value: str) -> bool:
    """What every machine has, or what stands for a name here: a host called "host"."""
    return _NOBODYS.fullmatch(value) is not None or value in _NAMES.values()


def _is_telling(kind: SecretKind, value: str) -> bool:
    """Whether a value is looked for in sentences: a model "small", a program "bash", a line "OK" are words."""
    if kind is SecretKind.FOLDER and "/" in value:
        return len(value) >= _LEAST  # "/" is in every path
    is_word = kind in _MAY_BE_WORDS
    return not value.isdigit() and (not is_word or len(value) >= TELLING or any(map(str.isdigit, value)))


def _sought(kind: SecretKind, value: str) -> str:
    """The pattern of what is looked for wherever it stands; of a word where a sentence has it as a name.

    As findings name programs: "bash (pid 4242, jobs) 1.8 cores", "cc1 (8 processes)".
    """
    if _is_telling(kind, value):
        return sought_text(value)
    if kind is SecretKind.PROGRAM:
        return rf"(?<![^\W_]){re.escape(value)}(?= \((?:pid )?\d)"
    return rf"(?<=, ){re.escape(value)}(?=\) [\d.])" if kind is SecretKind.FOLDER and value != "/" else ""


def _redacted(text: str, hidden: str) -> tuple[str, ...]:
    """What stood in a text where the other one says that something is hidden."""
    parts = map(re.escape, hidden.split(REDACTED))
    found = re.fullmatch(r"(\S+)".join(parts), text)
    return found.groups() if found else ()


def _shortened(path: str) -> str:
    """The last part of a path that is of this machine alone."""
    return path if _SYSTEM.match(path) else f"{_CUT}/{path.rpartition('/')[2]}"


def _runnable(remedy: str) -> str:
    """A remedy without what is left of hidden paths: no shell finds such a file.

    >>> _runnable("uv pip install --python …/.venv py-spy"), _runnable("sudo …/pip install py-spy")
    ('uv pip install py-spy', 'sudo pip install py-spy')
    """
    return _HIDDEN_FOLDER.sub("", _HIDDEN_VALUE.sub("", remedy))


def _texts(document: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """All texts, with the names of their fields."""
    if isinstance(document, str):
        yield name, document
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from _texts(value, key)
    elif isinstance(document, list):
        for one in document:
            yield from _texts(one, name)


def _tracks(document: Any) -> Iterator[Mapping[str, Any]]:
    """What may be tracks: a row of its own, or those of a block."""
    if isinstance(document, dict):
        several = document.get("tracks")
        tracks = several.values() if isinstance(several, dict) else ()
        yield from (one for one in (document, *tracks) if isinstance(one, dict))


def _names_of_own(track: Mapping[str, Any]) -> Iterator[str]:
    """What a process of the server, or a thread of one, is called: by its name and by its role."""
    if track.get("kind") in _OF_THE_SERVER:
        facts = track.get("facts")
        told = (track.get("name"), facts.get(ProcessFact.ROLE) if isinstance(facts, dict) else None)
        yield from (name for name in told if isinstance(name, str) and name)


def _kind_of_name(track: Mapping[str, Any]) -> SecretKind | None:
    """What the name of a track is, where it is none of llmtop's own."""
    kind, name = track.get("kind"), track.get("name")
    return _BY_TRACK.get(kind) if isinstance(kind, str) and isinstance(name, str) else None
