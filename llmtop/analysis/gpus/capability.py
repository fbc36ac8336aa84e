"""What all GPUs of a capture have in common by their compute capability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop import capability
from llmtop.analysis.gpus.models import GpuModel, find_gpu
from llmtop.facts import GpuFact, OriginFact
from llmtop.model import TrackKind

if TYPE_CHECKING:
    from llmtop.capability import Capability
    from llmtop.model import Trace


def capability_of(trace: Trace) -> Capability | None:
    """The lowest of the GPUs, as read or, where nothing gives it, the lowest of their models' architecture."""
    tracks = trace.tracks_of(TrackKind.GPU)
    facts = [
        *(track.facts.get(GpuFact.COMPUTE_CAPABILITY) for track in tracks),
        trace.origin.facts.get(OriginFact.COMPUTE_CAPABILITY),
    ]
    read = [one for fact in facts if isinstance(fact, str) for one in capability.capabilities(fact)]
    if read:
        return min(read)
    models = map(find_gpu, (*(track.name for track in tracks), trace.origin.gpu))
    return min((capability.FIRST_OF[one.architecture] for one in models if isinstance(one, GpuModel)), default=None)


def tensor_types_of(trace: Trace) -> frozenset[str] | None:
    """The types that the tensor cores of all its GPUs multiply ("fp16", "tf32" ...); None where that is not known."""
    lowest = capability_of(trace)
    names = " ".join((trace.origin.gpu, *(track.name for track in trace.tracks_of(TrackKind.GPU))))
    return None if lowest is None else capability.tensor_types(lowest, names)
