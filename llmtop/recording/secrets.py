"""Redaction of a recording for `share`.

`fields` lists what each field holds; a field that is not listed is dropped. Redaction takes two steps, because a
secret of one row must go from earlier rows too: `Secrets.learn` reads all documents, `Secrets.without` then returns
each of them redacted. In a text, known whole lines go first, then keys, then names, addresses and paths. A sentence
keeps only words of llmtop's own. `shared_copy` then searches the copy by another method (`remains`).
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from llmtop.facts import CONFIG_NUMBERS, CONFIG_TEXTS
from llmtop.frozen import frozen
from llmtop.model import TrackKind
from llmtop.recording.fields import FIELDS, OF_SOURCES, QUOTING, FieldKind, fact, name_of
from llmtop.recording.own_words import CHUNK, is_own
from llmtop.text import REDACTED, group_name, redact
from llmtop.vocabulary import parted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

TAKEN: Final = {"reason": "taken out by llmtop share"}
"""What stands for a fact that was taken out: an Unknown."""
_CUT: Final = "…"
_COMMAND: Final = "COMMAND"
_GONE: Final = object()
"""What becomes of a field that is not in a copy."""
_LEAST: Final = 2
"""Characters of what is looked for wherever it stands."""
_TELLING: Final = 8
"""Characters of what is no word of a language: it is looked for within longer words too."""
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
    NAME = "other names"
    MODEL = "model names"
    GPU = "ids of GPUs"
    PROGRAM = "other programs"
    OTHER = "what llmtop does not know"


ASKED_FOR: Final = frozenset({SecretKind.MODEL, SecretKind.GPU, SecretKind.PROGRAM})
"""What stays unless everything is to be anonymous."""
_MAY_BE_WORDS: Final = ASKED_FOR | {SecretKind.LOG, SecretKind.FOLDER, SecretKind.KEY, SecretKind.NAME}
_OF_FIELD: Final[Mapping[FieldKind, SecretKind]] = {
    FieldKind.COMMAND: SecretKind.COMMAND,
    FieldKind.LOG: SecretKind.LOG,
    FieldKind.FOLDER: SecretKind.FOLDER,
    FieldKind.HOST: SecretKind.HOST,
    FieldKind.MODEL: SecretKind.MODEL,
    FieldKind.GPU_ID: SecretKind.GPU,
    FieldKind.PROGRAM: SecretKind.PROGRAM,
}
_WHOLE: Final = frozenset({SecretKind.COMMAND, SecretKind.LOG, SecretKind.FOLDER})
"""Facts that go as a whole; of the others each value has a name of its own, so that what is one stays one."""
_NAMES: Final[Mapping[SecretKind, str]] = {
    SecretKind.USER: "user",
    SecretKind.HOST: "host",
    SecretKind.ADDRESS: "address",
    SecretKind.NAME: "name",
    SecretKind.MODEL: "model",
    SecretKind.GPU: "gpu-id",
    SecretKind.PROGRAM: "program",
}
STAND_IN: Final = re.compile(
    rf"(?:{'|'.join(_NAMES.values())})-\d+|{_COMMAND}|{_CUT}|{re.escape(REDACTED)}|{TAKEN['reason']}"
)
"""What stands for what was taken out."""
_STAYING: Final = frozenset({FieldKind.NAME, FieldKind.CODE, FieldKind.METRIC, FieldKind.DEVICE})
"""Names that sentences may have too."""

_HOME: Final = re.compile(r"/(?:home|Users)/([^/\s'\":,;()]+)")
_NOBODY: Final = frozenset({"user", "ubuntu", "debian", "admin", "ec2-user", "runner", "app"})
"""Accounts that are no person's."""
_PATH: Final = re.compile(r"(?<![\w.:/>…-])(?:~|\.\.?)?(?:/[^/\s'\":,;()<>|=]+)+/([^/\s'\":,;()<>|=]*)")
_SYSTEM: Final = re.compile(r"/(?:proc|sys|dev|usr/bin|usr/sbin|usr/lib\w*|bin|sbin|lib\w*|run|boot)/")
"""Paths that all machines have."""
_HIDDEN_VALUE: Final = re.compile(rf" --?\w[\w-]*[ =]{_CUT}(?:/[^\s'\":,;()<>|=]*)?(?=\s|$)")
_HIDDEN_FOLDER: Final = re.compile(rf"{_CUT}/")
"""What is left of a path: of the value of an option, and before the name of a file."""
_URL_HOST: Final = re.compile(rf"(?<=://)(?:{re.escape(REDACTED)}@)?(\[[0-9a-fA-F:.]+\]|\w[\w.-]*)")
_DUMP_HOST: Final = re.compile(r"(?<=\bcore_\d{10}_)[^/\s]+(?=_\d{1,10}\.nvcudmp)")
"""In the name that the driver gives a GPU's core dump, where no blank or dot sets it apart."""
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\w)")
_IPV6: Final = re.compile(
    r"(?<![\w:])(?:(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3}|64)(?::[0-9a-f]{0,4}){2,7}"
    r"|(?:[0-9a-f]{1,4}:){3,7}[0-9a-f]{1,4}|(?:[0-9a-f]{2}-){5}[0-9a-f]{2})(?![\w:])",
    re.IGNORECASE,
)
"""And the addresses of network cards."""
_MAIL: Final = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NOBODYS: Final = re.compile(r"(?:localhost|127\.[\d.]+|0\.0\.0\.0|\[?::1?\]?|PORT|HOST)(?::\d+)?\Z")
"""Addresses that every machine has."""
_RANDOM: Final = re.compile(
    r"(?<![\w/+])(?:(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{16,}"
    r"|(?!_Z)(?=(?:[\w/+]*?(?:[A-Za-z]\d|\d[A-Za-z])){4})[A-Za-z0-9/+]{20,}=*)(?![\w/+])"
)
"""What nobody has thought of: an id, a hash, a key."""
_ID: Final = re.compile(
    rf"(?:{'|'.join(kind.value for kind in TrackKind)})(?::(?:CPU|name-)?\d{{1,7}})?"
    r"(?:/(?:(?:mig|process|stream):)?\d{1,12})*\Z|\Z"
)
"""An id that has llmtop's own words and numbers alone (`llmtop.ids`): others have a name in them."""
_VERSION: Final = re.compile(r"v?\d+(?:\.\d+)*(?:[-.]?(?:a|b|rc|post|dev)\d+)*")
_GPU_ID: Final = re.compile(r"(?:(?:GPU|MIG)-)?[0-9a-fA-F:.-]{7,48}\Z")
_DEVICE_WORD: Final = 12
"""Characters of a word in the name of a GPU: "Generation"."""
_CALL: Final = re.compile(r"[a-z]\w{1,30}|[A-Za-z_][\w:.]{1,60}")
"""A system call, a function of a library."""


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
        self._named_words: set[str] = set()
        """Words of names that stay."""
        self._kept: frozenset[str] | None = None
        """Those of them that may stand in sentences, and so are no secrets by what else is known."""
        self._found: set[str] = set()
        """What the search of a copy has found: without the case, and sought as such."""
        self._learnt: set[tuple[FieldKind, str]] = set()
        self._shared: dict[tuple[FieldKind, str], tuple[Any, Counter[tuple[SecretKind, str, str, bool]]]] = {}
        """What texts have become, and what was taken out of each: most stand in a recording many times."""
        self._pattern: re.Pattern[str] | None = None
        self._seen: Counter[tuple[SecretKind, str, str, bool]] = Counter()

    @property
    def removals(self) -> tuple[Removal, ...]:
        """What has been taken out until now, by kind."""
        order = list(SecretKind)
        found = sorted(self._seen.items(), key=lambda one: (order.index(one[0][0]), -one[1], one[0]))
        return tuple(Removal(*what, places) for what, places in found)

    @property
    def kept(self) -> frozenset[str]:
        """Words of names that stay, and so may stand in sentences."""
        if self._kept is None:
            counted = self._seen.copy()
            logs = " ".join(known for known, (kind, _) in self._known.items() if kind is SecretKind.LOG).casefold()
            self._kept = frozenset(
                word for word in self._named_words if self._names(word) == word and word.casefold() not in logs
            )
            self._seen = counted
        return self._kept

    def seek(self, found: Iterable[str]) -> None:
        """Take these out wherever they stand from now on, whatever they are; count anew."""
        for what in found:
            self._found.add(what)
            self._known[what] = SecretKind.OTHER, _CUT
            self._named_words = {name for name in self._named_words if what not in name.casefold()}
        self._pattern = self._kept = None
        self._shared.clear()
        self._seen.clear()

    # -- learning ----------------------------------------------------------------------------------------------

    def learn(self, document: Any) -> None:
        """Note what a document tells to be secret, and which names stay."""
        for field, value in _texts(document):
            if (field, value) in self._learnt:
                continue
            self._learnt.add((field, value))
            for user in _HOME.findall(value):
                if user not in _NOBODY:
                    self._note(SecretKind.USER, user)
            for key in _redacted(value, redact(value)):
                if not is_own(key):
                    self._note(SecretKind.KEY, key)
            for pattern in (_URL_HOST, _IPV4, _IPV6, _MAIL):
                for found in pattern.finditer(value):
                    self._note(SecretKind.ADDRESS, found[found.re.groups])
            kind = SecretKind.NAME if field is FieldKind.ID and not _ID.match(value) else _OF_FIELD.get(field)
            if kind is not None:
                self._note(kind, (value.partition(":")[2] or value) if kind is SecretKind.NAME else value)
            if field is FieldKind.FOLDER:  # findings have a cgroup as people call it
                self._note(SecretKind.FOLDER, group_name(value))
            is_staying = field in _STAYING or kind in ASKED_FOR - self._out
            if is_staying:
                self._named_words.update(self._names_in(field, value))
            if field is FieldKind.NAME and value:
                self._keep(value)

    def _names_in(self, field: FieldKind, value: str) -> Iterator[str]:
        """Words of a name that stays."""
        if field is FieldKind.METRIC:
            value = parted(value)[1].replace("|", " ")
        if field is FieldKind.CODE:  # the function, and the name of its file
            value = value.rpartition("/")[2] if value.startswith("/") else _PATH.sub(r"\1", value)
        for chunk in CHUNK.findall(value):
            for name in {chunk, chunk.rpartition("/")[2]}:
                if not _RANDOM.search(name) and redact(name) == name:
                    yield name

    def _keep(self, name: str) -> None:
        """What rules know the server's processes by stays: of another program that is called so it tells nothing."""
        self._own.add(name)
        if self._known.get(name, ("",))[0] is SecretKind.PROGRAM:
            self._pattern = self._kept = None
            del self._known[name]

    def _note(self, kind: SecretKind, value: str) -> None:
        if kind not in self._out or len(value) < _LEAST or value in self._known or _is_nobodys(value):
            return
        if kind is SecretKind.PROGRAM and value in self._own:
            return
        self._pattern = self._kept = None
        self._known[value] = kind, self._name(kind)
        short = value.partition(".")[0] if kind is SecretKind.HOST else value.rpartition("/")[2]
        if kind in (SecretKind.HOST, SecretKind.MODEL) and short != value and len(short) >= _LEAST:
            self._known.setdefault(short, self._known[value])

    def _name(self, kind: SecretKind) -> str:
        if kind is SecretKind.COMMAND:
            return _COMMAND
        if kind is SecretKind.KEY:
            return REDACTED
        if kind not in _NAMES:
            return _CUT
        return f"{_NAMES[kind]}-{1 + len({instead for of, instead in self._known.values() if of is kind})}"

    # -- taking out --------------------------------------------------------------------------------------------

    def without(self, document: Any) -> Any:
        """The same document without what is secret."""
        return self._tree(document, FIELDS)

    def _tree(self, document: Any, fields: Mapping[str, FieldKind]) -> Any:
        """An object, or several, of whose fields each is of a kind."""
        if isinstance(document, list):
            return [self._tree(one, fields) for one in document]
        if not isinstance(document, dict):
            return None
        found = {}
        for name, value in document.items():
            field = fields.get(name)
            if field is None and name == "name":
                field = name_of(document)
            if field is None:
                self._count(SecretKind.OTHER, name, "")
                continue
            below = OF_SOURCES if name == "sources" or fields is OF_SOURCES else FIELDS
            if (shared := self._value(field, value, below)) is not _GONE:
                found[name] = shared
        return found

    def _value(self, field: FieldKind, value: Any, below: Mapping[str, FieldKind] = FIELDS) -> Any:
        """What becomes of what a field has; `_GONE` for nothing."""
        if isinstance(value, list):
            shared = (self._value(field, one, below) for one in value)
            return [one for one in shared if one is not _GONE]
        if isinstance(value, dict):
            return self._object(field, value, below)
        if isinstance(value, str):
            return self._text(field, value)
        is_number = value is None or isinstance(value, (int, float))
        return value if is_number and field is not FieldKind.CONFIG else _GONE

    def _object(self, field: FieldKind, value: dict[str, Any], below: Mapping[str, FieldKind]) -> Any:
        if field is FieldKind.TRACKS:
            return {self._text(FieldKind.ID, id): self._tree(track, FIELDS) for id, track in value.items()}
        if field is FieldKind.CONFIG:
            return self._config(value)
        if field is FieldKind.FACTS:
            return self._facts(value)
        if below is OF_SOURCES and field is FieldKind.OWN and not OF_SOURCES.keys() & value.keys():
            return {self.prose(name): self._value(field, one, below) for name, one in value.items()}
        return self._tree(value, below)  # of a value that is not known: why

    def _facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        shared = {}
        for name, value in facts.items():
            field = fact(name)
            if field is None:
                self._count(SecretKind.OTHER, name, "")
            elif (one := self._value(field, value)) is not _GONE:
                shared[name] = one
        return shared

    def _config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """What the arithmetic on a model's size uses; of layers that are not attention, that there are some."""
        shared: dict[str, Any] = {}
        for name, value in config.items():
            is_size = isinstance(value, int) and abs(value) < 10**9
            if (name in CONFIG_NUMBERS and is_size) or (
                name in CONFIG_TEXTS and isinstance(value, str) and all(map(is_own, CHUNK.findall(value)))
            ):
                shared[name] = value
            elif (found := re.search(r"mamba|ssm|linear_num|rwkv|lru_width", name)) is not None and is_size:
                shared[found[0]] = 1
            else:
                self._count(SecretKind.OTHER, name, "")
        return shared

    def _text(self, field: FieldKind, value: str) -> Any:
        """What becomes of a text in a field."""
        known = self._shared.get((field, value))
        if known is None:
            seen, self._seen = self._seen, Counter()
            known = self._shared[field, value] = self._shared_text(field, value), self._seen
            self._seen = seen
        if known[1]:
            self._seen.update(known[1])
        return known[0]

    def _shared_text(self, field: FieldKind, value: str) -> Any:
        """A text that is of some kind by its place."""
        kind = _OF_FIELD.get(field)
        if kind in _WHOLE and value:
            self._count(kind, value, "")
            return TAKEN
        if kind is not None and value in self._known:
            return self._instead_of(value)
        match field:
            case FieldKind.NUMBER | FieldKind.TREE | FieldKind.FACTS | FieldKind.TRACKS | FieldKind.CONFIG:
                return _GONE
            case FieldKind.ID:
                return self._id(value)
            case FieldKind.OWN | FieldKind.WHAT if all(map(is_own, CHUNK.findall(value.replace("-", " ")))):
                return value
            case FieldKind.OWN | FieldKind.PROSE | FieldKind.WHAT | FieldKind.URL:
                return self.prose(value)
            case FieldKind.REMEDY:
                return _runnable(self.prose(value))
            case FieldKind.METRIC:
                return self._metric(value)
            case FieldKind.VERSION:
                found = _VERSION.match(value)
                return found[0] if found else self.prose(value)
            case FieldKind.SETTING:
                shared = self.prose(value)
                return shared if _CUT not in shared and REDACTED not in shared else TAKEN
            case FieldKind.PROGRAM:  # without what it was told
                return self._names(re.sub(r"\s-.*", "", value, flags=re.DOTALL))
            case FieldKind.GPU_ID if _GPU_ID.match(value):
                return value
            case FieldKind.DEVICE:
                return self._names(value) if max(map(len, value.split()), default=0) <= _DEVICE_WORD else _CUT
            case _:
                return self._names(value)

    def _id(self, value: str) -> str:
        kind, colon, name = value.partition(":")
        return value if _ID.match(value) else f"{self.prose(kind)}{colon}{self._named(SecretKind.NAME, name or value)}"

    def _metric(self, value: str) -> str:
        """A metric by its name, with labels that are numbers, llmtop's words or functions."""
        name, bar, label = value[: len(parted(value)[0])], "", parted(value)[1]
        if label:
            bar = value[len(name) : len(name) + 1]
        name = name if is_own(name) else self._named(SecretKind.NAME, name)
        of_calls = name.startswith(("syscall.", "library."))
        labels = []
        for part in label.split(bar) if bar else ():
            shared = self._names(part)
            is_call = of_calls and _CALL.fullmatch(shared) is not None
            is_known = shared == part and (is_call or is_own(part) or part in self._own)
            labels.append(shared if is_known or STAND_IN.fullmatch(shared) else self._named(SecretKind.NAME, part))
        return bar.join([name, *labels]) if bar else name

    def _names(self, text: str) -> str:
        """A name, or what has several: without what is known, what looks like a key, and paths."""
        hidden = self._compiled().sub(lambda found: self._instead_of(found[0]), text)
        shown = redact(hidden)
        if shown != hidden:
            for key in _redacted(hidden, shown):
                self._count(SecretKind.KEY, key, REDACTED)
        hidden = self._compiled().sub(lambda found: self._instead_of(found[0]), shown) if shown != hidden else shown
        hidden = _PATH.sub(self._replacing(SecretKind.FOLDER, _shortened), hidden)
        hidden = _DUMP_HOST.sub(
            self._replacing(SecretKind.HOST, lambda host: self._named(SecretKind.HOST, host)), hidden
        )
        hidden = _MAIL.sub(self._replacing(SecretKind.ADDRESS, self._address), hidden)
        for pattern in (_URL_HOST, _IPV4, _IPV6):
            hidden = pattern.sub(self._replacing(SecretKind.ADDRESS, self._address), hidden)
        return _RANDOM.sub(self._replacing(SecretKind.OTHER, lambda _: _CUT), hidden)

    def prose(self, text: str) -> str:
        """A sentence of llmtop's without what is secret, and without what is none of its own words."""
        hidden = self._compiled().sub(lambda found: self._instead_of(found[0]), text)
        quoted = QUOTING.sub(rf"\1{_CUT}", hidden)
        if quoted != hidden:
            self._count(SecretKind.LOG, hidden, "")
        hidden = CHUNK.sub(self._replacing(SecretKind.OTHER, self._own_word), self._names(quoted))
        return re.sub(rf"{_CUT}(?:[ ,;:]*{_CUT})+", _CUT, hidden)

    def _own_word(self, chunk: str) -> str:
        rest = _SYSTEM.sub("", STAND_IN.sub("", chunk), count=1)
        return chunk if is_own(chunk, self.kept) or is_own(rest, self.kept) else _CUT

    def _compiled(self) -> re.Pattern[str]:
        if self._pattern is None:
            longest_first = sorted(self._known, key=len, reverse=True)
            parts = (
                f"(?i:{re.escape(value)})" if value in self._found else _sought(self._known[value][0], value)
                for value in longest_first
            )
            self._pattern = re.compile("|".join(filter(None, parts)) or r"(?!)")
        return self._pattern

    def _instead_of(self, known: str) -> str:
        kind, instead = self._known.get(known, (SecretKind.OTHER, _CUT))
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
        user, at, host = address.rpartition("@") if address.startswith(REDACTED) else ("", "", address)
        if _NOBODYS.fullmatch(host) or any(host == instead for _, instead in self._known.values()):
            return address
        return f"{user}{at}{self._named(SecretKind.ADDRESS, host)}"

    def _named(self, kind: SecretKind, what: str) -> str:
        """A name of its own for something; one that it has already stays."""
        if re.fullmatch(rf"{_NAMES[kind]}-\d+", what):
            return what
        if what not in self._known:
            self._known[what] = kind, self._name(kind)
        return self._known[what][1]

    def _count(self, kind: SecretKind, what: str, instead: str) -> None:
        if what == instead:  # of a copy that has been made already
            return
        shown = f"{what[:_KEY_SHOWN]}{_CUT}" if kind in (SecretKind.KEY, SecretKind.OTHER) and len(what) > 8 else what
        self._seen[kind, shown, instead, not _is_telling(kind, what)] += 1


def _is_nobodys(value: str) -> bool:
    """What every machine has, or what stands for a name here: a host called "host"."""
    return _NOBODYS.fullmatch(value) is not None or value in _NAMES.values() or STAND_IN.fullmatch(value) is not None


def _is_telling(kind: SecretKind, value: str) -> bool:
    """Whether a value is looked for in sentences: a model "small", a program "bash", a line "OK" are words."""
    if kind is not SecretKind.ADDRESS and is_own(value) and value.rpartition("/")[0] in ("", "/"):
        return False
    if kind is SecretKind.FOLDER and "/" in value:
        return len(value) >= _LEAST  # "/" is in every path
    is_word = kind in _MAY_BE_WORDS
    return not value.isdigit() and (not is_word or len(value) >= _TELLING or any(map(str.isdigit, value)))


def _sought(kind: SecretKind, value: str) -> str:
    """The pattern of what is looked for wherever it stands; of a word where a sentence has it as a name.

    As findings name programs: "bash (pid 4242, jobs) 1.8 cores", "cc1 (8 processes)".
    """
    if _is_telling(kind, value):
        escaped = re.escape(value)
        return escaped if len(value) >= _TELLING else rf"(?<![^\W_]){escaped}(?![^\W_])"
    if kind is SecretKind.PROGRAM:
        return rf"(?<![^\W_]){re.escape(value)}(?= \((?:pid )?\d)"
    return rf"(?<=, ){re.escape(value)}(?=\) [\d.])" if kind is SecretKind.FOLDER and value != "/" else ""


def _redacted(text: str, hidden: str) -> tuple[str, ...]:
    """What stood in a text where the other one says that something is hidden."""
    if text == hidden:
        return ()
    parts = map(re.escape, hidden.split(REDACTED))
    found = re.fullmatch(r"(.+?)".join(parts), text, re.DOTALL)
    return tuple(one.strip("\"'") for one in found.groups() if one != REDACTED) if found else ()


def _shortened(path: str) -> str:
    """The last part of a path that is of this machine alone."""
    return path if _SYSTEM.match(path) else f"{_CUT}/{path.rpartition('/')[2]}"


def _runnable(remedy: str) -> str:
    """A remedy without what is left of hidden paths: no shell finds such a file.

    >>> _runnable("uv pip install --python …/.venv py-spy"), _runnable("sudo …/pip install py-spy")
    ('uv pip install py-spy', 'sudo pip install py-spy')
    """
    return _HIDDEN_FOLDER.sub("", _HIDDEN_VALUE.sub("", remedy))


def _texts(
    document: Any, fields: Mapping[str, FieldKind] = FIELDS, field: FieldKind = FieldKind.PROSE
) -> Iterator[tuple[FieldKind, str]]:
    """All texts, with what their fields are; ids that are names of fields too."""
    if isinstance(document, str):
        yield field, document
    elif isinstance(document, list):
        for one in document:
            yield from _texts(one, fields, field)
    elif isinstance(document, dict):
        for name, value in document.items():
            below = OF_SOURCES if name == "sources" or fields is OF_SOURCES else FIELDS
            if field is FieldKind.TRACKS:
                yield FieldKind.ID, name
                of = FieldKind.TREE
            elif field is FieldKind.FACTS:
                of = fact(name) or FieldKind.PROSE
            else:
                of = fields.get(name) or (name_of(document) if name == "name" else FieldKind.PROSE)
            yield from _texts(value, below, of)
