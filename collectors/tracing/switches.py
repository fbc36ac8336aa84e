"""Environment variables that say which tracer may be used."""

from __future__ import annotations

CHOICE = "LLMTOP_TRACER"
"""Names the only tracer to use: ebpf or perf; or none."""
OFF = "LLMTOP_NO_EBPF"
"""Set to anything, no tracer is used but one that `CHOICE` names, and that one only if it loads no probes: perf."""
NONE = "none"
