"""A stand-in for vLLM, for vllm_cost.py: its processes, about as many threads as it has, and a page as long as its own.

    PATH/vllm serve MODEL --port PORT --engine PROGRAM     (PATH/vllm is a link to this file)

The API server sleeps in 50 threads and answers /metrics with all families of vLLM's and of its HTTP side, whose numbers
grow with the time; its child PROGRAM, stand_in_server.c under the title of vLLM's engine, has the other threads. It is
no server: nothing can be asked of it but its numbers.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

THREADS = 50
ENGINE = ("VLLM::EngineCore", "50", "1000", "10", "105", "2000")
"""Its title, launches and microseconds of work a step, threads that wake, that sleep, and how often they wake (us)."""
MODEL = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
LATENCIES = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
TTFT = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
SIZES = tuple(step * 10**power for power in range(6) for step in (1, 2, 5))
HANDLERS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics", "/tokenize", "none")
_FAMILIES: Mapping[str, tuple[float, ...]] = {
    "vllm:time_to_first_token_seconds": TTFT,
    "vllm:inter_token_latency_seconds": ITL,
    "vllm:request_time_per_output_token_seconds": ITL,
    **dict.fromkeys(
        (
            "vllm:e2e_request_latency_seconds",
            "vllm:request_queue_time_seconds",
            "vllm:request_inference_time_seconds",
            "vllm:request_prefill_time_seconds",
            "vllm:request_decode_time_seconds",
        ),
        LATENCIES,
    ),
    **dict.fromkeys(
        (
            "vllm:request_prompt_tokens",
            "vllm:request_generation_tokens",
            "vllm:iteration_tokens_total",
            "vllm:request_max_num_generation_tokens",
            "vllm:request_params_max_tokens",
            "vllm:request_params_n",
            "vllm:request_prefill_kv_computed_tokens",
            "vllm:kv_block_lifetime_seconds",
            "vllm:kv_block_idle_before_evict_seconds",
            "vllm:kv_block_reuse_gap_seconds",
        ),
        SIZES,
    ),
}
_RATES = {
    "vllm:generation_tokens_total": 2400.0,
    "vllm:prompt_tokens_total": 9000.0,
    "vllm:num_preemptions_total": 0.0,
    "vllm:prefix_cache_queries_total": 9000.0,
    "vllm:prefix_cache_hits_total": 4000.0,
    "vllm:external_prefix_cache_queries_total": 0.0,
    "vllm:external_prefix_cache_hits_total": 0.0,
    "vllm:mm_cache_queries_total": 0.0,
    "vllm:mm_cache_hits_total": 0.0,
    "vllm:prompt_tokens_cached_total": 4000.0,
    "vllm:corrupted_requests_total": 0.0,
    "vllm:estimated_flops_per_gpu_total": 2e14,
    "vllm:estimated_read_bytes_per_gpu_total": 2e12,
    "vllm:estimated_write_bytes_per_gpu_total": 1e10,
}
_PER_S, _MEAN_S = 40.0, 0.7


def page(t_s: float) -> str:
    """The metrics after so many seconds; the gauges swing with a period of a minute."""
    swing = (t_s % 60) / 60
    lines = ["# TYPE vllm:cache_config_info gauge"]
    config = 'block_size="16",cache_dtype="auto",enable_prefix_caching="True",gpu_memory_utilization="0.9"'
    lines.append(f'vllm:cache_config_info{{{config},engine="0",num_gpu_blocks="27000"}} 1.0')
    gauges = {"num_requests_running": 48 + 16 * swing, "num_requests_waiting": 8 * swing, "kv_cache_usage_perc": swing}
    for name, value in gauges.items():
        lines += [f"# TYPE vllm:{name} gauge", f"vllm:{name}{{{MODEL}}} {value:.3f}"]
    for name, rate in _RATES.items():
        lines += [f"# HELP {name} Counter.", f"# TYPE {name} counter", f"{name}{{{MODEL}}} {rate * t_s:.1f}"]
    lines += ["# TYPE vllm:request_success_total counter"]
    for reason, rate in (("stop", 30.0), ("length", 10.0), ("abort", 0.0), ("error", 0.0), ("repetition", 0.0)):
        lines.append(f'vllm:request_success_total{{{MODEL},finished_reason="{reason}"}} {rate * t_s:.1f}')
    for name, bounds in _FAMILIES.items():
        lines += _histogram(name, MODEL, bounds, t_s)
    for handler in HANDLERS:
        for method in ("GET", "POST"):
            labels = f'handler="{handler}",method="{method}"'
            lines.append(f'http_requests_total{{{labels},status="2xx"}} {3 * t_s:.1f}')
            for name in ("http_request_duration_seconds", "http_request_size_bytes", "http_response_size_bytes"):
                lines += _histogram(name, labels, ITL, t_s)
    lines += _histogram("http_request_duration_highr_seconds", "", LATENCIES, t_s)
    return "\n".join(lines) + "\n"


def _histogram(name: str, labels: str, bounds: tuple[float, ...], t_s: float) -> list[str]:
    """The counts of a family of which half lies below the bound in the middle."""
    count, comma = int(_PER_S * t_s), "," if labels else ""
    lines = [f"# HELP {name} Histogram.", f"# TYPE {name} histogram"]
    for i, bound in enumerate(bounds):
        below = int(count * min(1.0, (i + 1) / len(bounds)))
        lines.append(f'{name}_bucket{{{labels}{comma}le="{bound:g}"}} {below}.0')
    lines.append(f'{name}_bucket{{{labels}{comma}le="+Inf"}} {count}.0')
    lines += [f"{name}_count{{{labels}}} {count}.0", f"{name}_sum{{{labels}}} {count * _MEAN_S}"]
    return lines


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    started_s = time.monotonic()

    def do_GET(self) -> None:
        body = page(time.monotonic() - self.started_s + 60).encode() if self.path == "/metrics" else b"{}"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> int:
    """Be the server until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("serve", choices=("serve",))
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--engine", required=True, help="the built stand_in_server.c")
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), _Handler)
    engine = os.posix_spawn(
        options.engine, list(ENGINE), os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    )
    for _ in range(THREADS):
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(os.getpid(), engine, server.server_port, flush=True)
    try:
        server.serve_forever()
    finally:
        os.kill(engine, signal.SIGKILL)
        os.waitpid(engine, 0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
