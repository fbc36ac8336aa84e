"""Small files with one of everything that their parser reads, some of it not as it should be: written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from llmtop.parsers.speedscope import SCHEMA
from tests.parsers.kineto_files import few_events, kernel_pair, span

if TYPE_CHECKING:
    from collections.abc import Mapping

PERF = """\
# ========
# captured on    : Mon Nov 23 18:34:53 2026
# hostname : gpu7
# os release : 6.1.0
# perf version : 6.1.187
# cpudesc : A CPU
# cmdline : /usr/bin/perf record -g -- serve --api-key hunter2
# nrcpus online : 2
# ========
serve  4242/4243 [003] 59865.286132:     250000 cpu-clock:pppH:
\t          2ba81d visit+0x7d (/usr/lib/libpython3.11.so.1.0)
\t    1019b3 [unknown] (/usr/lib/libc.so.6)
\t    ffff81 do_sys+0x3 ([kernel.kallsyms])

serve  4242/4243 [003] 59865.286332:     500000 cpu-clock:pppH:
\t          2ba81d visit+0x7d (/usr/lib/libpython3.11.so.1.0)
\t    1019b3 [unknown] (/usr/lib/libc.so.6)
\t    ffff81 do_sys+0x3 ([kernel.kallsyms])

VM Thread 7  4242 [001] 1.5:  7 cpu/event=0x3c/:
\t 7f2d [unknown] ([unknown])
\t 7f2d clock_gettime+0x1 ([vdso])
worker 1 [000]  1.3:   1 sched:sched_wakeup:  ffff clear_page+0x7 ([kernel.kallsyms])
worker 1 [000]  1.4: sched:sched_wakeup:  ffff std::f(int, (anonymous namespace)::T) const+0x1f (/opt/a (deleted))
swapper 0 [000]  1.6:  9 cycles:

not a sample
serve  4242/4243 [003] 59865.3:     1000 task-clock:
\t          2ba81d visit+0x7d (/usr/lib/libpython3.11.so.1.0)
"""

FOLDED = """\
# by hand
serve;step;forward 12
serve;step;forward 3.5
serve;step;sample_[k] 4
serve;step;wait 1
serve;poll 7
serve;poll;read 6
client;connect 5
client;connect;send 0
client;connect;close 9
process 7:"serve --api-key hunter2";step 2
;;deep 1
no number
client 8"""

SANITIZER = """\
the program's own line
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at scale(float *, int)+0xd0 in scale.cu:9
=========     by thread (32,1,2) in block (3,4,5)
=========     Access at 0x7f241b0001e0 is out of bounds
=========     Device Frame: helper(int)+0x40 in helper.cuh:31
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: run(float *) in scale.cu:18 [0x8a81] in scale
=========         Host Frame: main in scale.cu:25 [0x8a91] in scale
=========
========= Misaligned __shared__ read of size 2
=========     at 0x3c8 in U:/x/y.cu:17:add(int*,int*)
========= Invalid __global__ read of size 8
=========     at 0x00000020 in test(int*, int*)
========= Warning: Race reported between Write access at reverse(float *)+0xb0 in reverse.cu:28
=========     and Read access at reverse(float *)+0xc0 in reverse.cu:30 [1024 hazards]
=========     and Read access at reverse(float *)+0x110 in reverse.cu:31 [512 hazards]
========= WARN:(Warp Level Programming) Potential WAR hazard detected at __shared__ 0x1 in block (0, 2, 0) :
=========     Read Thread (31, 0, 0) at 0x00000170 in ./race.cu:4:test(int*, int*)
=========     Write Thread (0, 0, 0) at 0x000001a8 in ./race.cu:5:test(int*, int*)
========= Error: Program hit cudaErrorIllegalAddress (error 700) on CUDA API call to cudaMemcpy.
========= Leaked 64 bytes at 0x7f2
========= Tracking kernels launched by child processes requires the --target-processes all option.
========= LEAK SUMMARY: 64 bytes leaked in 1 allocations
========= ERROR SUMMARY: 7 errors
"""

_IDENTITY = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC"'
)
_LAUNCHES = (
    '"0","42","serve","gpu7","void scale<float>(float *)","1","7","(32, 4, 1)","(224, 2, 3)","0","9.0"',
    '"1","42","serve","gpu7","reduce(int)","1","13","(64, 1, 1)","(5, 1, 1)","1","8.6"',
)
_RANGES = (
    '"42  ""<default domain>:decode:none:none:none:none:none:none""  ""torch:step: 3:none:none:none:none:none:none"" "',
    '"""7:nccl:all:none:none:none:none:none:none"""',
)
RAW_PAGE = f"""\
==PROF== Connected to process 42 (/usr/bin/serve)
{_IDENTITY},"thread Domain:Push/Pop_Range:PL_Type:PL_Value","Id:Domain:Start/Stop_Range:PL_Type:PL_Value",\
"gpu__time_duration.sum","dram__bytes.sum.per_second","launch__registers_per_thread","device__attribute_display_name"
"","","","","","","","","","","","","","us","Gbyte/second","register/thread",""
{_LAUNCHES[0]},{_RANGES[0]},{_RANGES[1]},"6.75","1,234.50","32","NVIDIA X"
==WARNING== Something was odd
{_LAUNCHES[1]},"","","n/a","0.5","40","NVIDIA X"
"2","42","serve"
"3","","serve"
==ERROR== The program ended
"""

DETAILS_PAGE = f"""\
{_IDENTITY},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description",\
"Estimated Speedup Type","Estimated Speedup"
{_LAUNCHES[0]},"GPU Speed Of Light Throughput","Duration","us","6.75"
{_LAUNCHES[0]},"GPU Speed Of Light Throughput","DRAM Throughput","%","12.5"
{_LAUNCHES[0]},"Command line profiler metrics","sm__cycles_elapsed.max","cycle","9,495"
{_LAUNCHES[0]},"SpeedOfLight","","","","Bottleneck","OPT","Use more of it.","global","21.5"
{_LAUNCHES[0]},"SpeedOfLight","","","","Bottleneck","WRN","It waits.","",""
{_LAUNCHES[0]},"SpeedOfLight","","","","HighPipe","ERR","It failed.","local","3"
{_LAUNCHES[1]},"Launch Statistics","Registers Per Thread","register/thread","40"
{_LAUNCHES[1]},"Launch Statistics","Grid Size","","5"
"""

SESSION_PAGE = """\
Launch Settings
"Launch Attribute","Value"
"Profiler Command Line","ncu --set full serve --api-key hunter2"
"Working Directory","/srv"

Session Info
"Session Attribute","Value"
"Created","2026-11-23"
"Nsight Compute Target","2025.3.1.0"
"Target Name","gpu7"

Processes
"Process Id","Process Name"
"42","serve"
"43","worker"

Device Attributes
"Device Attribute","Device 0","Device 1"
"display_name","NVIDIA X","NVIDIA Y"
"multiprocessor_count","132","108"
"""

TEXTS: Mapping[str, str] = {
    "perf.txt": PERF,
    "stacks.folded": FOLDED,
    "said.sanitizer.txt": SANITIZER,
    "raw.csv": RAW_PAGE,
    "details.csv": DETAILS_PAGE,
    "page.session.csv": SESSION_PAGE,
}
"""Formats of lines, by the names of their files."""


_KERNEL_STACK = "\n    vfs_write+920\n    do_syscall_64+113\n"
_USER_STACK = "\n    write+79\n    0x5630f996d35b\n    main+98\n"
_RANK = {"backend": "nccl", "rank": 1, "world_size": 4, "nccl_version": "2.27.3"}
_GROUP = {
    "Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 1000, "Out msg nelems": 1001,
    "Group size": 4, "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]",
}  # fmt: skip


def _memory(start: int, size: int, address: int, total: int, device: int = 0, kind: int = 1) -> dict[str, Any]:
    told = {"Device Type": kind, "Device Id": device, "Bytes": size, "Addr": address}
    return {
        "ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 10, "tid": 11, "ts": start, "s": "t",
        "args": {**told, "Total Allocated": total, "Total Reserved": 2 * total},
    }  # fmt: skip


def _kineto() -> dict[str, Any]:
    """A PyTorch trace of rank 1 of 4: all categories, memory, halves of spans, counters, names."""
    events = [
        *few_events(),
        *kernel_pair(7, 1300),
        span("kernel", "ncclDevKernel_AllReduce", 1330.5, 9, 1, tid=9, device=1, stream=9, correlation=8, **_GROUP),
        span("cpu_op", "record_param_comms", 1318, 5, **_GROUP),
        span("cuda_driver", "cuLaunchKernel", 1320, 2, correlation=8),
        span("gpu_memset", "Memset (Device)", 1345, 1, 0, tid=7, device=0, stream=7, bytes=64, correlation=9),
        span("cuda_sync", "Stream Synchronize", 1346, 3, 0, tid=7, device=0, stream=-1, correlation=10),
        span("gpu_user_annotation", "ProfilerStep#1", 1030, 100, 0, tid=7),
        span("python_function", "step.py(3): step", 1005, 190, tid=11),
        span("python_function", "step.py(9): mm", 1008, 110, tid=11),
        span("overhead", "Lazy Function Loading", 1050, 4),
        span("overhead", "Buffer Flush", 1400, 2, -1, tid=0),
        span("cpu_op", "ProfilerStep#0", 990, 5),
        span("Trace", "PyTorch Profiler (0)", 990, 500, "Spans", tid="PyTorch Profiler"),
        span("request", "prefill", 1000, 10, "web", tid="GPU 1"),
        _memory(1012, 512, 4096, 512),
        _memory(1013, 256, 8192, 768),
        _memory(1090, -512, 4096, 256),
        _memory(1095, -512, 4096, 256),
        _memory(1096, -64, 1, 192),
        _memory(1097, 100, 77, 100, -1, 0),
        {"ph": "B", "name": "outer", "pid": "web", "tid": "main", "ts": 1010},
        {"ph": "B", "name": "inner", "pid": "web", "tid": "main", "ts": 1012},
        {"ph": "E", "pid": "web", "tid": "main", "ts": 1015},
        {"ph": "E", "pid": "web", "tid": "main", "ts": 1025},
        {"ph": "E", "pid": "web", "tid": "main", "ts": 1026},
        {"ph": "b", "cat": "request", "id": 5, "name": "request", "pid": "web", "tid": "main", "ts": 1001},
        {"ph": "e", "cat": "request", "id": 5, "name": "request", "pid": "web", "tid": "main", "ts": 1031},
        {"ph": "C", "name": "GPU 0 Utilization", "pid": 10, "ts": 1002, "args": {"value": 40}},
        {"ph": "C", "name": "queue", "pid": 10, "ts": 1003, "args": {"waiting": 3, "running": "2.5", "odd": "x"}},
        {"ph": "M", "name": "process_name", "pid": 10, "args": {"name": "python3"}},
        {"ph": "M", "name": "thread_name", "pid": 10, "tid": 10, "args": {"name": "thread 10 (engine)"}},
        {"ph": "X", "cat": "cpu_op", "name": "no length", "pid": 10, "tid": 10, "ts": 1201.25},
        {"ph": "X", "cat": "cuda_runtime", "name": "no length", "pid": 10, "tid": 10, "ts": 1202},
        {"ph": "X", "cat": "cpu_op", "name": "never", "pid": 10, "tid": 10, "ts": 1200, "dur": -1},
    ]
    properties = {"name": "NVIDIA X", "numSms": 8, "totalGlobalMem": 1 << 30, "warpSize": 32}
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, **properties}, {"id": 1, **properties, "name": "NVIDIA Y"}],
        "distributedInfo": _RANK,
        "record_shapes": 1,
        "with_stack": True,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 12080,
        "torch_version": "2.11.0",
        "baseTimeNanoseconds": 1_795_224_090_000_000_000,
        "traceEvents": events,
    }


DOCUMENTS: Mapping[str, Any] = {
    "some.pt.trace.json": _kineto(),
    "of-the-gpu-alone.pt.trace.json": {"traceEvents": kernel_pair(1, 1000)[1:]},
    "of-the-cpu-alone.pt.trace.json": {"traceEvents": [span("cpu_op", "aten::mm", 1000, 10)]},
    "some.speedscope.json": {
        "$schema": SCHEMA,
        "exporter": "by hand 1",
        "shared": {"frames": [{"name": "main", "file": "a.py", "line": 3}, {"name": "step", "file": "b.py"}, {}]},
        "profiles": [
            {
                "type": "sampled", "name": 'Process 42 Thread 43 "engine"', "unit": "milliseconds",
                "samples": [[0, 1], [0], [0, 1], [], [9]], "weights": [1.5, 2, 0.25, 7, 1],
            },
            {
                "type": "evented", "name": "Thread 0x7f", "unit": "seconds",
                "events": [
                    {"type": kind, "frame": frame, "at": at}
                    for kind, frame, at in (
                        ("O", 0, 1), ("O", 2, 2), ("C", 2, 2.5), ("O", 1, 3), ("C", 1, 4), ("C", 0, 6)
                    )
                ],
            },
            {"type": "sampled", "name": "memory", "unit": "bytes", "samples": [[1], [2]], "weights": [64]},
        ],
    },
    "some.py-spy.json": [
        {
            "pid": 42, "thread_id": 140, "thread_name": "engine", "os_thread_id": 43, "active": True, "owns_gil": True,
            "frames": [
                {"name": "forward", "filename": "/srv/engine.py", "short_filename": "engine.py", "line": 3},
                {"name": "main", "filename": "/srv/main.py", "short_filename": None, "line": 9},
            ],
        },
        {"pid": 42, "thread_id": 141, "thread_name": None, "os_thread_id": None, "active": True, "owns_gil": False,
         "frames": [{"name": "wait", "filename": "q.py"}]},
        {"pid": 42, "thread_id": 142, "os_thread_id": 45, "active": False, "frames": [{"name": "x"}]},
        {"pid": 42, "thread_id": 143, "frames": []},
        {"pid": 42, "thread_id": 144, "frames": [7]},
    ],
    "some.bpftrace.json": [
        {"type": "attached_probes", "data": {"probes": 2}},
        {"type": "map", "data": {"@x": {f"serve,42,43,{_KERNEL_STACK},{_USER_STACK}": 3, _USER_STACK: 1}}},
        {
            "type": "map",
            "data": {
                "@x": {f"serve,42,43,{_KERNEL_STACK},{_USER_STACK}": 5, f"{_USER_STACK},worker": 2.5, "bare": 7},
                "@ns": {_KERNEL_STACK: 700, f"7,{_USER_STACK}": True, f"9,{_USER_STACK},{_USER_STACK}": 11},
                "@total": {"serve": 9},
            },
        },
        "no map",
    ],
}  # fmt: skip
"""Formats of JSON, by the names of their files; of bpftrace each part is a line."""


def in_json(name: str, document: Any) -> str:
    """A document as its tool writes it."""
    if name.endswith(".bpftrace.json"):
        return "".join(f"{json.dumps(line)}\n" for line in document)
    return json.dumps(document)
