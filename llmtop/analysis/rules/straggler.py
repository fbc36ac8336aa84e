"""One GPU of a server does not keep step with the others."""

from __future__ import annotations

from collections.abc import Iterator

from llmtop import vocabulary as v
from llmtop.analysis.rules.evidence import gpu_names
from llmtop.analysis.stragglers import server_gpus, stragglers
from llmtop.model import Finding, Severity, Trace

id = "straggler"
summary = "One GPU is slower or does other work than its peers: in tensor parallelism all wait for it."
source = "Sinha et al., Not All GPUs Are Created Equal (SC'22, arXiv:2208.11035); median and MAD over the peers"


def check(trace: Trace) -> Iterator[Finding]:
    """A finding for each GPU that departs, with what departs."""
    for track, reason in stragglers(trace, server_gpus(trace)).items():
        slow = v.GPU_SM_CLOCK.title in reason
        yield Finding(
            rule=id,
            severity=Severity.WARNING,
            subject=gpu_names([track]),
            message=f"{gpu_names([track])} departs from its peers: {reason}",
            evidence=tuple(reason.split("; ")),
            action=_COOL if slow else _BALANCE,
            next_command=f"nvidia-smi -i {track.removeprefix('gpu:')} -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER",
            source=source,
        )


_COOL = "compare cooling, power limit and neighbours of this GPU with the others'; all ranks wait for its clock"
_BALANCE = "look at how work is shared out: a pipeline stage, experts, or requests of one data-parallel rank"
