"""Kernel names short enough for a table that still tell its rows apart."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from llmtop.analysis.kernels.family import KernelFamily, kernel_kind
from llmtop.text import base_name, shorten

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+")
_WORD = re.compile(r"[A-Za-z0-9]+")
_SHOWN_WORDS = 2
"""Words that tell kernels of one title from each other."""
_LONGEST = 20_000
"""Names of tens of kilobytes exist; what differs beyond this is left to the number that tells them apart."""
_FILLER = frozenset({"void", "const", "int", "unsigned", "long", "bool", "char", "unnamed", "native", "detail", "std"})


def short_names(
    names: Sequence[str], functions: Sequence[str], given: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """Short forms of `names`, of the same order, different wherever the names are.

    A kernel whose name says what it computes is called so (`kernel_family`); another one keeps its function's name.
    Where several share a short form, the parts that not all of them have follow in angle brackets (of what has a
    title of ours, the first two); where that does not tell them apart, a number does.

    Args:
        names: Distinct demangled names.
        functions: The function's own name of each.
        given: What the user calls some of them.

    >>> add, mul = (f"void tiles::run<4, tiles::{op}<float>>(int)" for op in ("add", "mul"))
    >>> short_names([add, mul, "void step(int)"], ["run", "run", "step"])
    ('run<add>', 'run<mul>', 'step')
    >>> short_names(["nvjet_tst_64x8_64x16_2x1_v_bz_TNT", "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"], ["", ""])
    ('GEMM 64x8 bf16 nvjet<2x1>', 'GEMM 64x8 bf16 nvjet<4x1>')
    """
    members: dict[str, list[int]] = defaultdict(list)
    titles = [kernel_kind(name).title for name in names]
    for i, function in enumerate(functions):
        members[titles[i] or function or base_name(names[i])].append(i)
    shorts = [given.get(name, "") for name in names]
    for base, places in members.items():
        suffixes = _suffixes([names[place] for place in places], has_title=bool(titles[places[0]]))
        for place, suffix in zip(places, suffixes, strict=True):
            shorts[place] = shorts[place] or base + suffix
    return tuple(_numbered(shorts))


def kernel_label(name: str) -> str:
    """What one kernel by itself is called: what it computes, else its function's name.

    >>> kernel_label("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>(int)")
    'elementwise add fp32 vec4'
    >>> kernel_label("void multimem_all_reduce_kernel<float, 16>(float *)")
    'multimem_all_reduce_kernel'
    """
    return kernel_kind(name).title or base_name(name)


def shorten_kernel(short: str, width: int) -> str:
    """A short name in so many characters: the operation stays, which says more than that it is elementwise.

    >>> shorten_kernel("elementwise silu bf16 vec8", 24), shorten_kernel("GEMM 64x8 bf16 split-K nvjet<2x1>", 24)
    ('silu bf16 vec8', 'GEMM 64x8 bf… nvjet<2x1>')
    """
    return short if len(short) <= width else shorten(short.removeprefix(f"{KernelFamily.ELEMENTWISE} "), width)


def _suffixes(names: Sequence[str], *, has_title: bool) -> Iterable[str]:
    """For each name, what it has and some of the others lack."""
    if len(names) == 1:
        return [""]
    pattern, most = (_WORD, _SHOWN_WORDS) if has_title else (_TOKEN, None)
    tokens = [list(dict.fromkeys(pattern.findall(name[:_LONGEST]))) for name in names]
    spread = Counter(token for own in tokens for token in own)
    differing = [[token for token in own if spread[token] < len(names) and token not in _FILLER] for own in tokens]
    return [f"<{','.join(own[:most])}>" if own else "" for own in differing]


def _numbered(shorts: Sequence[str]) -> Iterable[str]:
    """Add #2, #3 ... to the second and later ones of the same text."""
    seen: Counter[str] = Counter()
    for short in shorts:
        seen[short] += 1
        yield short if seen[short] == 1 else f"{short}#{seen[short]}"
