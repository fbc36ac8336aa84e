"""Foreign text, made safe once, at the model's border."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_CONTROL_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_INVISIBLE = (
    *range(0x80, 0xA0),  # C1: 8-bit CSI and friends
    *range(0x200B, 0x2010),  # zero width, LRM, RLM
    *range(0x2028, 0x202F),  # line and paragraph separators, bidi embeddings
    *range(0x2060, 0x2070),  # word joiner, bidi isolates
    *range(0xD800, 0xE000),  # lone surrogates: no encoding can write them
    0x061C,
    0x180E,
    0xFEFF,
)
_SAFE = _CONTROL_PICTURES | dict.fromkeys(_INVISIBLE, "\ufffd")
_HARMLESS = re.compile(r"[\x20-\x7e]*\Z")
_UNSAFE = re.compile(f"[{re.escape(''.join(map(chr, _SAFE)))}]")


def is_clean(text: str) -> bool:
    """Whether `clean` has nothing to replace."""
    return _UNSAFE.search(text) is None


def clean(text: str) -> str:
    r"""Replace every character that could steer a terminal or hide by one that shows.

    C0 and DEL become control pictures; C1, bidi and zero-width characters become U+FFFD. Nothing else changes:
    brackets are not markup here, and widgets must not treat them so.

    >>> clean("silu[lambda() (instance 1)]")
    'silu[lambda() (instance 1)]'
    >>> clean("a\x1b[2Jb\x9bc")
    'a␛[2Jb\ufffdc'
    """
    return text if _HARMLESS.match(text) else text.translate(_SAFE)


def shorten(text: str, width: int) -> str:
    """Cut the middle out of a long text, so that both what it is and what differs at its end stay.

    >>> shorten("elementwise_kernel<4, CUDAFunctor_add<float>>", 24)
    'elementwise_…add<float>>'
    """
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[:width]
    tail = (width - 1) // 2
    head = width - 1 - tail
    return f"{text[:head]}…{text[len(text) - tail :]}"


def listed(items: Iterable[str], last: str = "and") -> str:
    """Several things in a sentence.

    >>> listed(["a"]), listed("ab", "or"), listed("abc")
    ('a', 'a or b', 'a, b and c')
    """
    *others, final = items
    return f"{', '.join(others)} {last} {final}" if others else final


_SECRET_FLAG = re.compile(
    r"(?i)(?<![\w-])(\w{0,64}-[\w-]{0,64}(?:token(?!i[sz])|secret|passw\w{0,64}|passphrase|api[-_]?key"
    r"|credential\w{0,64}|auth\w{0,64})[\w-]{0,64})([= ])(\S+)"
)
_SECRET_VARIABLE = re.compile(
    r"(?i)(?<![\w-])([\w-]{0,64}(?:token(?!i[sz])|secret|passw\w{0,64}|passphrase|api_?key|credential\w{0,64}|auth)\w{0,64})(=)(\S+)"
)
_SECRET_PAIR = re.compile(
    r"(?i)(?P<before>(?<![\w.-])[\w.-]{0,64}(?:token|secret|passwo?r?d|passphrase|api[-_]?key"
    r"|credentials?|private[-_]?key|access[-_]?key"
    r"|signature)[\"']?: ?)(?!\[redacted\])(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;}]+)"
)
"""As JSON, YAML and headers have it."""
_SHAPES = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\w+/=\s\\,:\u2400-\u2426-]*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?"
    r"|(?<=ookie: )[^\r\n\"']{3,}"
    r"|(?<=://)[^/\s@\[\"'<>,]+(?=@)"
    r"|(?P<query>(?i:[?&;](?:X-(?:Amz|Goog|Ms)-[\w-]+|[\w.-]*(?:sig|signature|token|key|secret|passw\w*|pwd|auth\w*"
    r"|credential\w*))=)"
    r"|(?i:\bauthorization[\"']?: ?[\"']?[a-z]+ )"
    r"|\b(?i:bearer) (?=\S{6})|\b(?i:basic) (?=[a-z]*[A-Z\d])(?=[\w+/]{8})|(?i:\b(?:Account|SharedAccess)Key=))"
    r"(?!\[redacted\])[^\s&#\"'<>,;]{3,}"
    r"|\b(?:sk|xox[a-z]|xapp|glpat|gl[a-z]{2,4}t|nvapi|pypi|xai|pplx|tskey|GOCSPX|PMAK)-[\w-]{8,}"
    r"|\b(?:gh[a-z]|github_pat|dckr_pat|shp[a-z]{2}|lin_api|whsec|dop_v1|rubygems|ntn)_[\w-]{8,}"
    r"|\b(?:hf|npm|rk|pk|sk|gsk|r8|wandb_v1|api_org)_(?=\w*[\dA-Z]|[a-z]{16})[\w-]{8,}"
    r"|\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\bya29\.[\w-]{10,}|\bSG\.[\w-]{10,}\.[\w-]+"
    r"|\bhvs\.[\w-]{16,}|\bdapi[0-9a-f]{32}|\beyJ[\w-]{8,}\.[\w.-]+|\b\d{6,12}:AA[\w-]{20,}|\bAGE-SECRET-KEY-\w+"
    r"|(?<=ssh-rsa )AAAA[\w+/=]+|(?<=-ed25519 )AAAA[\w+/=]+|[A-Za-z0-9+/]{86}=="
    r"|(?<=hooks\.slack\.com/services/)[\w/-]+|(?<=/api/webhooks/)[\w/-]+"
)
"""Shapes of tokens and keys: OpenAI, Hugging Face, NVIDIA, GitHub, GitLab, AWS, Google, Azure, Slack, Stripe, npm,
PyPI, Telegram and others, private keys, the user part of a URL, signatures in its query. Compiled on first use:
compiling takes time that a start would notice."""
_COUNTED = frozenset({"max", "min", "num", "n", "total", "batch", "batched", "prefill", "draft", "new"})
_NUMBER = re.compile(r"(?i)\d+[kmg]?")
REDACTED = "[redacted]"


def redact(command_line: str) -> str:
    """Hide secrets in a text of another program: values by their names, and what looks like a key or a token.

    What llmtop reads of command lines, logs, labels and URLs goes through it where it is read, so that nothing that
    leaves the machine has any: screens, recordings, reports and pages are made of it.

    >>> redact("vllm serve m --api-key sk-123 --port 8000")
    'vllm serve m --api-key [redacted] --port 8000'
    >>> redact("HF_TOKEN=hf_abc vllm serve")
    'HF_TOKEN=[redacted] vllm serve'
    >>> redact("vllm serve m --tokenizer /m --max-num-batched-tokens 8k --api-tokens 123")
    'vllm serve m --tokenizer /m --max-num-batched-tokens 8k --api-tokens [redacted]'
    >>> redact("GET https://me:pw@host/x?X-Amz-Signature=ab12 of AKIAIOSFODNN7EXAMPLE, password: 'a b'")
    'GET https://[redacted]@host/x?X-Amz-Signature=[redacted] of [redacted], password: [redacted]'
    """
    hidden = _SECRET_VARIABLE.sub(_hidden, _SECRET_FLAG.sub(_hidden, command_line))
    if ":" in hidden:
        hidden = _SECRET_PAIR.sub(_hidden_pair, hidden)
    return hide_keys(hidden)


def hide_keys(text: str) -> str:
    """Hide what looks like a key or a token, in a text of any form: JSON stays JSON.

    >>> hide_keys('{"url": "http://h", "of": "me@h", "key": "sk-0123456789"}')
    '{"url": "http://h", "of": "me@h", "key": "[redacted]"}'
    """
    return re.sub(_SHAPES, lambda found: f"{found['query'] or ''}{REDACTED}", text)


def _hidden(found: re.Match[str]) -> str:
    return found[0] if _is_count(found[1], found[3]) else f"{found[1]}{found[2]}{REDACTED}"


def _hidden_pair(found: re.Match[str]) -> str:
    return found[0] if _NUMBER.fullmatch(found["value"]) else f"{found['before']}{REDACTED}"


def _is_count(name: str, value: str) -> bool:
    """How many tokens, which opens no door: --max-num-batched-tokens 8k, MAX_TOTAL_TOKENS=4096."""
    words = name.lower().replace("_", "-").split("-")
    return "tokens" in words and not _COUNTED.isdisjoint(words) and _NUMBER.fullmatch(value) is not None


def shell_command(words: Iterable[str]) -> str:
    """A command line as one types it: words quoted where a shell needs that, the values of secrets hidden.

    >>> shell_command(["vllm", "serve", "my model", "--api-key", "a b", "--hf-token=c d"])
    "vllm serve 'my model' --api-key [redacted] --hf-token=[redacted]"
    >>> shell_command(["--max-total-tokens", "139000", "--tokenizer", "m", "--max-tokens=9", "--api-tokens", "a1"])
    '--max-total-tokens 139000 --tokenizer m --max-tokens=9 --api-tokens [redacted]'
    """
    shown: list[str] = []
    is_secret, flag = False, ""
    for word in words:
        is_secret = is_secret and not _is_count(flag, word)
        shown.append(REDACTED if is_secret else quoted(_without_secrets(word)))
        is_secret, flag = _SECRET_FLAG.fullmatch(f"{word} x") is not None, word
    return " ".join(shown)


def quoted(word: str) -> str:
    r"""A word as a shell takes it, on one line; what stands for a secret is left as it is, to be replaced.

    Control characters, and what `clean` has put in their place, are written as bash, zsh and POSIX of 2024 take them.

    >>> quoted("a b"), quoted("[redacted]")
    ("'a b'", '[redacted]')
    >>> print(quoted("a\nb"), quoted(clean("a\nb")))
    $'a\012b' $'a\012b'
    """
    if _CONTROLS.search(word):
        return "$'" + _CONTROLS.sub(_octal, word.replace("\\", "\\\\").replace("'", "\\047")) + "'"
    rest = word.replace(REDACTED, "x")
    return word if shlex.quote(rest) == rest else shlex.quote(word)


_CONTROLS = re.compile("[\\x00-\\x1f\\x7f\\u2400-\\u241f\\u2421]")


def _octal(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\{0o177 if code == 0x2421 else code % 0x2400:03o}"


def _without_secrets(word: str) -> str:
    """One word without secrets: of an assignment all that follows, spaces too."""
    name, is_assignment, value = word.partition("=")
    told = f"{name}={value.strip() or 'x'}"
    if is_assignment and not any(map(str.isspace, name)) and redact(told) != told:
        return f"{redact(name)}={REDACTED}"
    return redact(word)


_CONTAINER = re.compile(
    r"(?:(docker|libpod|crio|cri-containerd|containerd)[-:])?([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?\Z"
)
_RUNTIMES = {"libpod": "podman", "cri-containerd": "containerd"}


def group_name(path: str) -> str:
    """What people call a cgroup: the container, or the unit that systemd made it for; empty for the root group.

    >>> group_name("/system.slice/docker-" + "3f2a91b0c7d1" + 52 * "0" + ".scope")
    'docker 3f2a91b0c7d1'
    >>> group_name("/docker/" + "3f2a91b0c7d1" + 52 * "0"), group_name("/user.slice/session-3.scope"), group_name("/")
    ('docker 3f2a91b0c7d1', 'session-3.scope', '')
    """
    parts = path.strip("/").split("/")
    for i in range(len(parts) - 1, -1, -1):
        if (found := _CONTAINER.match(parts[i])) is not None:
            above = parts[i - 1] if i else ""
            runtime = found[1] or (above if above in ("docker", "libpod") else "container")
            return f"{_RUNTIMES.get(runtime, runtime)} {found[2]}"
    return parts[-1]


_COUNTER = re.compile(r"#?(?<![A-Za-z_\d])\d+(?![A-Za-z_\d])")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_OF_PYTORCH = re.compile(r", (seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)


def is_operator(text: str) -> bool:
    """Whether PyTorch made this NVTX range, of one of its operators.

    >>> is_operator("aten::mul, op_id = 9, seq = 4, sizes = [[8]]"), is_operator("step 12")
    (True, False)
    """
    return _OF_PYTORCH.search(text) is not None


def range_name(text: str) -> str:
    """The name that the NVTX ranges of every step share: without numbers, addresses, and what PyTorch appends.

    >>> range_name("step 12 of 300"), range_name("conv2d"), range_name("aten::mul, op_id = 9, seq = 4, sizes = [[8]]")
    ('step # of #', 'conv2d', 'aten::mul')
    >>> range_name("hook of 0x7f3a2c01e8d0"), range_name("ProfilerStep#12"), range_name("execute_8192_context_1")
    ('hook of #', 'ProfilerStep#', 'execute_8192_context_1')
    """
    return _COUNTER.sub("#", _ADDRESS.sub("#", _OF_PYTORCH.sub("", text)))


_LONGEST_NAME = 20_000
"""Names of tens of kilobytes exist."""


def whole_namespaces(name: str) -> str:
    """A name as tools print it that cut namespaces off: of <unnamed> they leave the end, behind whatever stood before.

    >>> whole_namespaces("void unnamed>::cat<unnamed>::Opaque<2>, int>(unnamed>::Meta<2>)")
    'void cat<Opaque<2>, int>(Meta<2>)'
    """
    return re.sub(r"(?<![<\w])unnamed>::", "", re.sub(r"(?<=\w)<unnamed>::", "<", name))


def base_name(name: str) -> str:
    """The function in a demangled name, without its return type, namespaces, template and call arguments.

    >>> base_name("void at::native::<unnamed>::sort<int, 4>(float *)")
    'sort'
    """
    head = re.sub(r"<?unnamed>|\(anonymous namespace\)", "_", whole_namespaces(name[:_LONGEST_NAME]))
    opened = re.split(r"[<(]", head, maxsplit=1)[0].strip()
    return opened.split(" ")[-1].split("::")[-1] or name[:40]


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """What follows a word that there is not: the nearest one that there is; empty where none is near.

    >>> did_you_mean("ttft_p9", ["itl_p99", "ttft_p99"]), did_you_mean("foo", ["ttft_p99"])
    (': did you mean ttft_p99?', '')
    """
    from difflib import get_close_matches  # of a slip of the hand alone

    return "".join(f": did you mean {near}?" for near in get_close_matches(word, list(words), n=1))
