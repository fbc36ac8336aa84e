"""Metrics pages as servers of several versions write them: names and labels by hand, from the releases' sources."""

from __future__ import annotations

from collections.abc import Mapping


def histogram(name: str, labels: str, buckets: Mapping[str, int], total: float) -> str:
    """A histogram family; `labels` without braces."""
    comma = "," if labels else ""
    braces = f"{{{labels}}}" if labels else ""
    lines = [f"# HELP {name} Histogram.", f"# TYPE {name} histogram"]
    lines += [f'{name}_bucket{{le="{le}"{comma}{labels}}} {count}.0' for le, count in buckets.items()]
    lines += [f"{name}_count{braces} {max(buckets.values())}.0", f"{name}_sum{braces} {total}"]
    return "\n".join(lines) + "\n"


_PYTHON = """# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="12",version="3.12.3"} 1.0
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.73e+09
"""


def vllm_v1(engines: int = 1, running: tuple[float, ...] = (64.0,), kv: tuple[float, ...] = (0.87,)) -> str:
    """The page of vLLM 0.17 and newer, one or several data-parallel engines."""
    text = _PYTHON
    for i in range(engines):
        labels = f'engine="{i}",model_name="meta-llama/Llama-3.1-8B"'
        text += f"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{labels}}} {running[i]}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{labels}}} 12.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{{labels}}} {kv[i]}
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{{labels}}} 3.0
# TYPE vllm:num_preemptions_created gauge
vllm:num_preemptions_created{{{labels}}} 1.73e+09
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{{labels}}} 1000.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{{labels}}} 2431.0
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{{labels}}} 1000.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{{labels}}} 410.0
# TYPE vllm:estimated_flops_per_gpu_total counter
vllm:estimated_flops_per_gpu_total{{{labels}}} 2e+15
# TYPE vllm:request_success_total counter
vllm:request_success_total{{finished_reason="stop",{labels}}} 30.0
vllm:request_success_total{{finished_reason="length",{labels}}} 8.0
vllm:request_success_total{{finished_reason="abort",{labels}}} 2.0
vllm:request_success_total{{finished_reason="error",{labels}}} 1.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="16",cache_dtype="auto",num_gpu_blocks="27000",{labels}}} 1.0
"""
        text += histogram("vllm:time_to_first_token_seconds", labels, {"0.1": 5, "0.25": 30, "+Inf": 40}, 9.5)
        text += histogram("vllm:inter_token_latency_seconds", labels, {"0.025": 900, "0.05": 1000, "+Inf": 1001}, 21.0)
        text += histogram("vllm:iteration_tokens_total", labels, {"64.0": 100, "+Inf": 120}, 7000.0)
    return text


def vllm_v0() -> str:
    """The page of vLLM 0.6.6: engine V0's names, one label."""
    labels = 'model_name="facebook/opt-125m"'
    return (
        _PYTHON
        + f"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{labels}}} 2.0
# TYPE vllm:num_requests_swapped gauge
vllm:num_requests_swapped{{{labels}}} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{labels}}} 0.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{{{labels}}} 0.25
# TYPE vllm:gpu_prefix_cache_hit_rate gauge
vllm:gpu_prefix_cache_hit_rate{{{labels}}} 0.5
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{{labels}}} 77.0
"""
        + histogram("vllm:time_per_output_token_seconds", labels, {"0.01": 4, "+Inf": 4}, 0.03)
    )


def sglang(ranks: int = 1) -> str:
    """SGLang 0.5.8 and newer; with several ranks, as --enable-metrics-for-all-schedulers writes it."""
    text = ""
    for rank in range(ranks):
        labels = f'engine_type="unified",model_name="Qwen3-8B",pp_rank="0",tp_rank="{rank}"'
        text += f"""# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{{{labels}}} 5.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{{{labels}}} 7.0
# TYPE sglang:token_usage gauge
sglang:token_usage{{{labels}}} 0.28
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{{{labels}}} 0.6
"""
    labels = 'engine_type="unified",model_name="Qwen3-8B"'
    return (
        text
        + f"""# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{{{labels}}} 800.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{{labels}}} 900.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{{{labels}}} 11.0
"""
        + histogram("sglang:inter_token_latency_seconds", labels, {"0.02": 3, "+Inf": 4}, 0.1)
        + histogram("sglang:queue_time_seconds", labels, {"0.5": 4, "+Inf": 4}, 0.2)
    )


def sglang_0_3() -> str:
    """SGLang 0.3.6."""
    labels = 'name="Qwen2-7B"'
    return f"sglang:num_running_reqs{{{labels}}} 1.0\n" + histogram(
        "sglang:time_per_output_token_seconds", labels, {"0.02": 3, "+Inf": 4}, 0.1
    )


def tgi() -> str:
    """Text Generation Inference, as its Rust exporter writes it: counters without _total."""
    return """# TYPE tgi_request_success counter
tgi_request_success 21

# TYPE tgi_request_failure counter
tgi_request_failure{err="overloaded"} 2
tgi_request_failure{err="validation"} 1

# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 4

# TYPE tgi_queue_size gauge
tgi_queue_size 9

# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{le="512"} 20
tgi_request_generated_tokens_bucket{le="+Inf"} 21
tgi_request_generated_tokens_sum 4200
tgi_request_generated_tokens_count 21

# TYPE tgi_batch_inference_duration histogram
tgi_batch_inference_duration_bucket{method="prefill",le="0.1"} 6
tgi_batch_inference_duration_bucket{method="prefill",le="+Inf"} 7
tgi_batch_inference_duration_sum{method="prefill"} 0.9
tgi_batch_inference_duration_count{method="prefill"} 7
tgi_batch_inference_duration_bucket{method="decode",le="0.1"} 99
tgi_batch_inference_duration_bucket{method="decode",le="+Inf"} 100
tgi_batch_inference_duration_sum{method="decode"} 2.5
tgi_batch_inference_duration_count{method="decode"} 100
"""


def llamacpp() -> str:
    """llama-server --metrics."""
    return """# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 128
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 256
# TYPE llamacpp:n_decode_total counter
llamacpp:n_decode_total 300
# TYPE llamacpp:n_busy_slots_per_decode counter
llamacpp:n_busy_slots_per_decode 1.5
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 0
"""


def triton() -> str:
    """Triton with the TensorRT-LLM backend; durations in milliseconds."""
    labels = 'model="llama",version="1"'
    return f"""# TYPE nv_inference_request_success counter
nv_inference_request_success{{{labels}}} 50
nv_trt_llm_request_metrics{{request_type="waiting",{labels}}} 6
nv_trt_llm_request_metrics{{request_type="scheduled",{labels}}} 8
nv_trt_llm_request_metrics{{request_type="max",{labels}}} 512
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="fraction",{labels}}} 0.4
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="used",{labels}}} 4000
nv_inference_first_response_histogram_ms_bucket{{{labels},le="100"}} 5
nv_inference_first_response_histogram_ms_bucket{{{labels},le="+Inf"}} 6
nv_inference_first_response_histogram_ms_sum{{{labels}}} 900
nv_inference_first_response_histogram_ms_count{{{labels}}} 6
"""


def trtllm() -> str:
    """TensorRT-LLM's trtllm-serve with return_perf_metrics."""
    labels = 'engine_type="undefined",model_name="undefined"'
    return f"""# TYPE trtllm_generation_tokens_total counter
trtllm_generation_tokens_total{{{labels}}} 77.0
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{{{labels}}} 2.0
"""
