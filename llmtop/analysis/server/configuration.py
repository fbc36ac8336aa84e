"""What a server is set to, and advice that knows it.

Nothing is advised that is on, that the server's engine does not have, or that needs a GPU where there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import settings
from llmtop.analysis.series.readings import own_gpus
from llmtop.capability import capabilities, tensor_types
from llmtop.facts import SETTINGS_OF, GpuFact
from llmtop.frozen import frozen
from llmtop.model import Feature, Trace, TrackKind, Unknown
from llmtop.settings import keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmtop.model import Fact, Value

_OF_GPUS = frozenset(
    {
        Feature.CUDA_GRAPHS,
        Feature.TORCH_COMPILE,
        Feature.GPU_MEMORY_SHARE,
        Feature.TENSOR_PARALLEL,
        Feature.PIPELINE_PARALLEL,
        Feature.EXPERT_PARALLEL,
    }
)
_TITLES = {
    Feature.CUDA_GRAPHS: "CUDA graphs",
    Feature.TORCH_COMPILE: "torch.compile",
    Feature.KV_CACHE_DTYPE: "KV cache dtype",
    Feature.KV_OFFLOADING: "KV offloading",
    Feature.KV_BLOCKS: "KV blocks",
    Feature.KV_BLOCK_SIZE: "tokens in a KV block",
    Feature.MAX_RUNNING: "requests at once, at most",
    Feature.MAX_BATCHED_TOKENS: "tokens in a step, at most",
    Feature.MAX_LENGTH: "tokens of a request, at most",
    Feature.GPU_MEMORY_SHARE: "share of GPU memory",
    Feature.API_SERVERS: "API servers",
    Feature.CPU_THREADS: "threads of a CPU pool",
}
_NOT_KNOWN = Unknown("what the server is set to is not known", "attach to a server that llmtop knows: docs/servers.md")


@frozen
class Setting:
    """What one feature is set to, and who says so: a flag, the server's metrics, its version's default."""

    feature: Feature
    value: Value
    source: str

    @property
    def title(self) -> str:
        """The feature as people write it."""
        return _TITLES.get(self.feature, self.feature.replace("_", " "))

    @property
    def text(self) -> str:
        """The value as people read it."""
        return self.value if isinstance(self.value, str) else f"{self.value:g}"

    @property
    def is_on(self) -> bool:
        """Whether it is in use."""
        return settings.is_on(self.value)


def setting(trace: Trace, feature: Feature) -> Setting | Unknown:
    """What the server is set to, or why that is not known."""
    facts = _facts(trace)
    if facts is None:
        return _NOT_KNOWN
    keys = keys_of(feature)
    value = facts.get(keys.value)
    if value is None:
        return Unknown(f"{facts[SETTINGS_OF]} has no setting for {feature.replace('_', ' ')} that llmtop knows")
    return value if isinstance(value, Unknown) else Setting(feature, value, str(facts.get(keys.source)))


def configuration(trace: Trace) -> dict[Feature, Setting | Unknown]:
    """All that the server's engine can be set to; empty where the engine is not known."""
    facts = _facts(trace) or {}
    return {feature: setting(trace, feature) for feature in Feature if keys_of(feature).value in facts}


def is_on(trace: Trace, feature: Feature) -> bool | Unknown:
    """Whether a feature is in use, or why that is not known."""
    found = setting(trace, feature)
    return found if isinstance(found, Unknown) else found.is_on


def number(trace: Trace, feature: Feature) -> float | None:
    """A setting that is a number."""
    found = setting(trace, feature)
    return float(found.value) if isinstance(found, Setting) and not isinstance(found.value, str) else None


def switch_on(trace: Trace, feature: Feature, words: str) -> str:
    """Advice to switch something on, with this engine's way to do so; empty where it is on or cannot be had.

    Args:
        trace: With the server's settings.
        feature: What to switch on.
        words: What it is, as people say it: "CUDA graphs".
    """
    if is_on(trace, feature) is True:
        return ""
    return change(trace, feature, words)


def change(trace: Trace, feature: Feature, words: str) -> str:
    """Advice to set something otherwise, with this engine's way to do so; empty where it cannot be.

    Of a server whose engine is not known the words alone are said, and where the way names fp8 and its GPUs lack that.
    """
    facts = _facts(trace)
    if feature in _OF_GPUS and not own_gpus(trace):
        return ""
    if facts is None:
        return words
    how = facts.get(keys_of(feature).change)
    if not isinstance(how, str):
        return ""
    facts_of_gpus = (gpu.facts.get(GpuFact.COMPUTE_CAPABILITY) for gpu in own_gpus(trace))
    read = [one for fact in facts_of_gpus if isinstance(fact, str) for one in capabilities(fact)]
    is_lacking = "fp8" in how and bool(read) and "fp8" not in tensor_types(min(read))
    return words if is_lacking else f"{words} ({how})"


def one_of(*options: str, otherwise: str = "") -> str:
    """Pieces of advice in a row, without those that do not apply.

    >>> one_of("", "more KV blocks", "shorter contexts"), one_of("", otherwise="look closer")
    ('more KV blocks, shorter contexts', 'look closer')
    """
    return ", ".join(option for option in options if option) or otherwise


def _facts(trace: Trace) -> Mapping[str, Fact] | None:
    """Those of the endpoint, which knows the version and what the server says; else those of the root process."""
    tracks = (*trace.tracks_of(TrackKind.SERVER), *trace.tracks_of(TrackKind.PROCESS))
    return next((track.facts for track in tracks if SETTINGS_OF in track.facts), None)
