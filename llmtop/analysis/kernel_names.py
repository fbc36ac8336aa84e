"""Kernel names short enough for a table that still tell its rows apart."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+")
_LONGEST = 20_000
"""Names of tens of kilobytes exist; what differs beyond this is left to the number that tells them apart."""
_FILLER = frozenset({"void", "const", "int", "unsigned", "long", "bool", "char", "unnamed", "native", "detail", "std"})


def short_names(names: Sequence[str], functions: Sequence[str]) -> tuple[str, ...]:
    """Short forms of `names`, of the same order, different wherever the names are.

    A function that occurs once keeps its plain name. Where several names share it (templates), the parts that not
    all of them have follow in angle brackets; where that does not tell them apart, a number does.

    Args:
        names: Distinct demangled names.
        functions: The function's own name of each.

    >>> add, mul = (f"void at::elementwise<4, at::CUDAFunctor_{op}<float>>(int)" for op in ("add", "mul"))
    >>> short_names([add, mul, "void gemm(int)"], ["elementwise", "elementwise", "gemm"])
    ('elementwise<CUDAFunctor_add>', 'elementwise<CUDAFunctor_mul>', 'gemm')
    """
    members: dict[str, list[int]] = defaultdict(list)
    for i, function in enumerate(functions):
        members[function or base_name(names[i])].append(i)
    shorts = [""] * len(names)
    for base, places in members.items():
        for place, suffix in zip(places, _suffixes([names[place] for place in places]), strict=True):
            shorts[place] = base + suffix
    return tuple(_numbered(shorts))


def base_name(name: str) -> str:
    """The function in a demangled name, without its return type, namespaces, template and call arguments.

    >>> base_name("void at::native::<unnamed>::sort<int, 4>(float *)")
    'sort'
    """
    head = re.sub(r"<unnamed>|\(anonymous namespace\)", "_", name[:_LONGEST])
    opened = re.split(r"[<(]", head, maxsplit=1)[0].strip()
    return opened.split(" ")[-1].split("::")[-1] or name[:40]


def _suffixes(names: Sequence[str]) -> Iterable[str]:
    """For each name, what it has and some of the others lack."""
    if len(names) == 1:
        return [""]
    tokens = [list(dict.fromkeys(_TOKEN.findall(name[:_LONGEST]))) for name in names]
    spread = Counter(token for own in tokens for token in own)
    differing = [[token for token in own if spread[token] < len(names) and token not in _FILLER] for own in tokens]
    return [f"<{','.join(own)}>" if own else "" for own in differing]


def _numbered(shorts: Sequence[str]) -> Iterable[str]:
    """Add #2, #3 ... to the second and later ones of the same text."""
    seen: Counter[str] = Counter()
    for short in shorts:
        seen[short] += 1
        yield short if seen[short] == 1 else f"{short}#{seen[short]}"
