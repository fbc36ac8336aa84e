"""The demo server's Prometheus metrics, by the names and labels of vLLM's V1 engine (0.17 and newer)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

# vLLM's bounds, and finer ones below them: the small model's tokens come within few milliseconds.
_FINE = (0.001, 0.002, 0.003, 0.004, 0.005, 0.0075)
_TTFT = (*_FINE, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
_ITL = (*_FINE, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_REQUEST = (*_FINE, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240)
_ITERATION = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
FINISH_REASONS = ("stop", "length", "abort")


@dataclass(slots=True)
class Timeline:
    """The moments of one request; monotonic seconds.

    Attributes:
        scheduled_s: When it left the queue; `first_s` and `last_s`: when its first and newest token arrived.
    """

    arrived_s: float
    prompt_tokens: int
    scheduled_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0


class Metrics:
    """All metrics of one server, in a registry of their own. Written by one thread, read by any."""

    def __init__(self, engine: dict[str, Any]) -> None:
        self._labels = {"model_name": engine["model"], "engine": "0"}
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._running = self._gauge("num_requests_running", "Requests in the batch")
        self._waiting = self._gauge("num_requests_waiting", "Requests in the queue")
        self._kv_usage = self._gauge("kv_cache_usage_perc", "KV blocks in use; 1 is all of them")
        self._preemptions = self._counter("num_preemptions", "Requests that lost their KV blocks")
        self._prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache")
        self._prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens processed")
        self._generation_tokens = self._counter("generation_tokens", "Tokens generated")
        self._flops = self._counter("estimated_flops_per_gpu", "FLOPs by the model's own arithmetic")
        self._read_bytes = self._counter("estimated_read_bytes_per_gpu", "Bytes read by the model's own arithmetic")
        self._write_bytes = self._counter(
            "estimated_write_bytes_per_gpu", "Bytes written by the model's own arithmetic"
        )
        self._iteration = self._histogram("iteration_tokens_total", "Tokens computed in one step", _ITERATION)
        self._ttft = self._histogram("time_to_first_token_seconds", "Arrival to first token", _TTFT)
        self._itl = self._histogram("inter_token_latency_seconds", "Token to token", _ITL)
        self._e2e = self._histogram("e2e_request_latency_seconds", "Arrival to last token", _REQUEST)
        self._queue = self._histogram("request_queue_time_seconds", "Arrival to first being scheduled", _REQUEST)
        self._prefill = self._histogram("request_prefill_time_seconds", "Scheduled to first token", _REQUEST)
        self._decode = self._histogram("request_decode_time_seconds", "First to last token", _REQUEST)
        self._success = Counter(
            "vllm:request_success",
            "Requests ended",
            [*self._labels, "finished_reason"],
            registry=self._registry,
        )
        for reason in FINISH_REASONS:
            self._success.labels(**self._labels, finished_reason=reason)
        self._seen = {"preemptions": 0, "prefix_queries": 0, "prefix_hits": 0}
        self._describe_cache(engine)

    def text(self) -> bytes:
        """The exposition that /metrics serves."""
        return generate_latest(self._registry)

    def take_state(self, state: dict[str, Any]) -> None:
        """Follow the engine's gauges and its counters since the start."""
        self._running.set(state["running"])
        self._waiting.set(state["waiting"])
        self._kv_usage.set(state["kv_usage"])
        for name, counter in (
            ("preemptions", self._preemptions),
            ("prefix_queries", self._prefix_queries),
            ("prefix_hits", self._prefix_hits),
        ):
            counter.inc(state[name] - self._seen[name])
            self._seen[name] = state[name]

    def take_step(self, step: dict[str, Any]) -> None:
        """Count one step of the engine."""
        self.take_state(step["state"])
        self._iteration.observe(step["tokens"])
        self._flops.inc(step["flops"])
        self._read_bytes.inc(step["read_bytes"])
        self._write_bytes.inc(step["write_bytes"])

    def take_token(self, request: Timeline, scheduled_s: float, now_s: float) -> None:
        """Count one generated token."""
        self._generation_tokens.inc()
        if not request.first_s:
            request.first_s, request.scheduled_s = now_s, scheduled_s
            self._prompt_tokens.inc(request.prompt_tokens)
            self._ttft.observe(now_s - request.arrived_s)
        else:
            self._itl.observe(now_s - request.last_s)
        request.last_s = now_s

    def take_end(self, request: Timeline, reason: str) -> None:
        """Count a request that ended; one aborted before its first token has no latencies."""
        self._success.labels(**self._labels, finished_reason=reason).inc()
        if request.first_s:
            self._e2e.observe(request.last_s - request.arrived_s)
            self._queue.observe(request.scheduled_s - request.arrived_s)
            self._prefill.observe(request.first_s - request.scheduled_s)
            self._decode.observe(request.last_s - request.first_s)

    def _describe_cache(self, engine: dict[str, Any]) -> None:
        facts = {
            "block_size": engine["block_size"],
            "num_gpu_blocks": engine["kv_blocks"],
            "cache_dtype": engine["dtype"],
            "enable_prefix_caching": engine["prefix_caching"],
            "max_num_seqs": engine["max_num_seqs"],  # vLLM's has no such label: there it is on the command line
            "engine": "0",
        }
        info = Gauge("vllm:cache_config_info", "Settings of the KV cache", list(facts), registry=self._registry)
        info.labels(**{name: str(value) for name, value in facts.items()}).set(1)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, list(self._labels), registry=self._registry).labels(**self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, list(self._labels), registry=self._registry).labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, list(self._labels), buckets=buckets, registry=self._registry)
        return histogram.labels(**self._labels)
