"""Can llmtop tell a CPU-bound decode loop from a GPU-bound one? Both look alike from outside: one thread at 100 %.

    python benchmarks/tell_apart.py                     both loops in turn, each beside what llmtop says of it
    python benchmarks/tell_apart.py --json FILE         the same, with the whole snapshots
    python benchmarks/tell_apart.py loop gpu|cpu        one loop, to attach to by hand

The GPU-bound loop replays a CUDA graph of large matrix-vector products and waits for each step: its thread spins within
the driver. The CPU-bound one launches small kernels one by one and samples in Python between them. Each loop keeps its
own account (time between CUDA events, time in Python). llmtop attaches to the running process with its real
`snapshot`, with probes on the real libcuda where they can be loaded. Exit code 1 where it mistakes one for the other.
Needs a GPU and torch with CUDA.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import LLMTOP, ROOT, table

ACCOUNT_S = 1.0
"""A loop tells its account this often."""
WARM_S = 4.0
"""Before llmtop comes: libraries are loaded, clocks are up."""
LOOK_S = 10.0
LAYERS = 16
WIDE, NARROW = 8192, 512
VOCABULARY = 2000
VERDICTS = {"gpu": "gpu-bound", "cpu": "cpu-bound"}
"""Part of the rule's name that must lead, by loop; the other's must not be there."""


def sample_in_python(logits: Sequence[float], kept: int = 40) -> int:
    """Top-k sampling as a naive server does it: sorts and sums in the interpreter."""
    ranked = sorted(range(len(logits)), key=lambda i: -logits[i])[:kept]
    weights = [2.718281828 ** min(60.0, logits[i] - logits[ranked[0]]) for i in ranked]
    total = sum(weights)
    return ranked[max(range(kept), key=lambda i: weights[i] / total)]


def gpu_step() -> Callable[[], tuple[float, float]]:
    """A decode step that is one graph of large products; gives (GPU s, Python s) of each step."""
    import torch

    weights = [torch.randn(WIDE, WIDE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
    hidden = torch.randn(8, WIDE, device="cuda", dtype=torch.bfloat16)
    torch.tanh(hidden @ weights[0])  # cuBLAS makes its handle, which a capture may not
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for weight in weights:
            hidden = torch.tanh(hidden @ weight)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def step() -> tuple[float, float]:
        start.record()
        graph.replay()
        end.record()
        torch.cuda.current_stream().synchronize()
        return start.elapsed_time(end) / 1e3, 0.0

    return step


def cpu_step() -> Callable[[], tuple[float, float]]:
    """A decode step of many small kernels and a sampler in Python; gives (GPU s, Python s) of each step."""
    import torch

    weights = [torch.randn(NARROW, NARROW, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
    head = torch.randn(NARROW, VOCABULARY, device="cuda", dtype=torch.bfloat16)
    hidden = torch.randn(1, NARROW, device="cuda", dtype=torch.bfloat16)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def step() -> tuple[float, float]:
        nonlocal hidden
        start.record()
        for weight in weights:
            hidden = torch.tanh(hidden @ weight)
        logits = (hidden @ head)[0]
        end.record()
        values = logits.float().tolist()  # waits for the GPU
        begun = time.perf_counter()
        sample_in_python(values)
        return start.elapsed_time(end) / 1e3, time.perf_counter() - begun

    return step


def loop(kind: str) -> None:
    """Decode for ever; a line of JSON with the shares of each second."""
    step = {"gpu": gpu_step, "cpu": cpu_step}[kind]()
    while True:
        begun, cpu_begun, steps, on_gpu, in_python = time.perf_counter(), time.thread_time(), 0, 0.0, 0.0
        while (elapsed := time.perf_counter() - begun) < ACCOUNT_S:
            gpu_s, python_s = step()
            steps, on_gpu, in_python = steps + 1, on_gpu + gpu_s, in_python + python_s
        account = {"steps/s": steps / elapsed, "between events": on_gpu / elapsed, "in Python": in_python / elapsed}
        print(json.dumps(account | {"on CPU": (time.thread_time() - cpu_begun) / elapsed}), flush=True)


@contextmanager
def running(kind: str) -> Iterator[subprocess.Popen[str]]:
    """A loop in a process of its own that has made its first account."""
    argv = [sys.executable, str(Path(__file__)), "loop", kind]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise SystemExit(f"the {kind} loop did not start")
        yield process
    finally:
        process.kill()
        process.wait()


def look(kind: str) -> tuple[dict[str, float], dict[str, Any]]:
    """The loop's own account while llmtop looks, and llmtop's snapshot."""
    with running(kind) as process:
        assert process.stdout is not None
        for _ in range(int(WARM_S)):
            process.stdout.readline()
        argv = [*LLMTOP, "snapshot", "--json", "--attach", str(process.pid), "--seconds", f"{LOOK_S:g}"]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=True)
        accounts = [json.loads(process.stdout.readline()) for _ in range(int(LOOK_S))]
    return {name: sum(one[name] for one in accounts) / len(accounts) for name in accounts[0]}, json.loads(done.stdout)


def said(snapshot: dict[str, Any]) -> dict[str, Any]:
    """What of a snapshot tells the two apart."""
    threads = [one for one in snapshot["threads"] if isinstance(one.get("on_cpu"), float)]
    busiest: dict[str, Any] = max(threads, key=lambda one: one["on_cpu"], default={})
    gpu = (snapshot["gpus"] or [{}])[0]
    return {
        "SM": gpu.get("sm"),
        "on CPU": busiest.get("on_cpu"),
        "in CUDA sync": busiest.get("in_cuda_sync"),
        "blocked": busiest.get("blocked"),
        "findings": [one["rule"] for one in snapshot["findings"]],
    }


def compare() -> tuple[dict[str, Any], bool]:
    """Both loops; what they and llmtop say, and whether llmtop is right."""
    results: dict[str, dict[str, Any]] = {}
    is_right = True
    for kind, verdict in VERDICTS.items():
        account, snapshot = look(kind)
        results[kind] = {"account": account, "llmtop": said(snapshot), "snapshot": snapshot}
        rules = results[kind]["llmtop"]["findings"]
        others = set(VERDICTS.values()) - {verdict}
        is_right &= any(verdict in rule for rule in rules) and not any(o in rule for rule in rules for o in others)
    return results, is_right


def main() -> int:
    """Run one loop, or compare both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("loop").add_argument("kind", choices=("gpu", "cpu"))
    args = parser.parse_args()
    if args.command == "loop":
        loop(args.kind)
    results, is_right = compare()
    rows = [
        (kind, who, what, f"{value:.3f}" if isinstance(value, float) else str(value))
        for kind, result in results.items()
        for who in ("account", "llmtop")
        for what, value in result[who].items()
    ]
    print(table(("loop", "told by", "what", "value"), rows))
    print("told apart" if is_right else "MISTAKEN")
    if args.json:
        args.json.write_text(json.dumps(results))
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
