"""What `llmtop.snapshot/1` says of requests and of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmtop.analysis.pages.batch_advice import batch_advice
from llmtop.analysis.server.requests import requests_view
from llmtop.cli.documents import document_or_why, fact

if TYPE_CHECKING:
    from llmtop.analysis.pages.batch_advice import BatchAdvice, BatchLimit
    from llmtop.analysis.server.batches import StepLine
    from llmtop.analysis.server.kv_cache import KvRunway
    from llmtop.analysis.server.requests import FirstToken, Goodput, PreemptionCost, RequestsView, ShareBounds
    from llmtop.cli.documents import Json
    from llmtop.model import Target, Trace


def requests_document(trace: Trace, window_ns: int) -> Json:
    """The section "requests": each part, or why it is not known."""
    return document_or_why(requests_view(trace, window_ns), _requests)


def _requests(view: RequestsView) -> Json:
    return {
        "first_token": document_or_why(view.first_token, _first_token),
        "goodput": document_or_why(view.goodput, _goodput),
        "kv_runway": document_or_why(view.runway, _runway),
        "preemption": document_or_why(view.preemption, _preemption),
    }


def _first_token(found: FirstToken) -> Json:
    parts: list[Json] = [{"part": name, "mean_s": seconds} for name, seconds in found.parts]
    return {
        "mean_s": found.total_s,
        "parts": parts,
        "observations": round(found.observations),
        "source": found.source,
        "notes": list(found.notes),
    }


def _goodput(found: Goodput) -> Json:
    return {
        "limits": [{"objective": one.title, "limit_s": one.limit_s} for one in found.limits],
        "first_tokens": _share(found.first_tokens),
        "gaps": _share(found.gaps),
        "requests": _share(found.requests),
        "tokens": _share(found.tokens),
        "first_tokens_per_s": fact(found.per_s),
        "notes": list(found.notes),
    }


def _share(share: ShareBounds) -> dict[str, Json]:
    return {"low": share.low, "high": share.high}


def _runway(found: KvRunway) -> Json:
    return {
        "usage": found.usage,
        "growth_per_s": found.per_s,
        "full_s": found.full_s,
        "low_s": found.low_s,
        "high_s": found.high_s,
        "source": found.source,
    }


def _preemption(found: PreemptionCost) -> Json:
    return {
        "thrown_out": found.thrown_out,
        "window_s": found.window_s,
        "tokens_each": found.tokens_each,
        "tokens_per_s": found.tokens_per_s,
        "of_prompt_tokens": found.of_prompts,
        "quality": "estimate",
        "source": found.source,
    }


def batches_document(trace: Trace, target: Target | None) -> Json:
    """The section "batches": what was seen by batch, the line through it, and what limits a larger one."""
    return document_or_why(batch_advice(trace, target), _batches)


def _batches(advice: BatchAdvice) -> Json:
    ranges: list[Json] = [
        {"low": one.low, "high": one.high, "itl_s": one.itl_s, "tokens": one.tokens, "looks": one.looks}
        for one in advice.ranges
    ]
    return {
        "batch": advice.batch,
        "seen": ranges,
        "line": document_or_why(advice.line, _line),
        "limits": [_limit(one) for one in advice.limits],
        "knee": document_or_why(advice.knee, lambda knee: _knee(advice, knee)),
    }


def _line(found: StepLine) -> Json:
    line = found.line
    return {
        "level_s": line.intercept,
        "level_error_s": line.intercept_error,
        "per_request_s": line.slope,
        "per_request_error_s": line.slope_error,
        "looks": found.looks,
        "looks_effective": line.n_effective,
        "smallest": found.smallest,
        "largest": found.largest,
    }


def _knee(advice: BatchAdvice, knee: BatchLimit) -> Json:
    rates = advice.tokens_per_s
    told: dict[str, Json] = {} if rates is None else {"tokens_per_s_now": rates[0], "tokens_per_s": rates[1]}
    return _limit(knee) | told | {"is_beyond_seen": advice.is_beyond}


def _limit(one: BatchLimit) -> dict[str, Json]:
    return {"by": one.name, "batch": one.batch, "low": one.low, "high": one.high, "how": one.how}
