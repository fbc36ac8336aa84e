"""What llmtop says of a bpftrace that is not looking, told by a stand-in for its helper."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from llmtop.collectors.tracing.bpftrace.collector import BpftraceCollector
from tests.collectors.tracing.probes import eventually
from tests.workloads.programs import target_of

if TYPE_CHECKING:
    from llmtop.collectors.tracing.helped import ProbePoll
    from llmtop.model import Trace

READY = {
    "kind": "ready",
    "pid": os.getpid(),
    "processes": [os.getpid()],
    "others": [],
    "missing": {},
    "knows_calls": True,
}
ATTACHING = {"kind": "attaching"}
SAMPLE = {"kind": "sample", "t": 5, "elapsed": 1, "missing": {}, "unprobed": {}, "shed": "", "lost": 0} | {
    part: [] for part in ("born", "gone", "renewed", "stacks", "running")
}
END = {"kind": "end"}


class Watched(BpftraceCollector):
    """Notes what it was told, and the trace of each poll."""

    def __init__(self) -> None:
        super().__init__(target_of(os.getpid()))
        self.heard: list[str] = []
        self.traces: list[Trace] = []

    def _take(self, report: dict[str, Any], news: ProbePoll) -> None:
        super()._take(report, news)
        self.heard.append(report["kind"])

    def has_heard_all(self) -> bool:
        self.traces.append(self.poll())
        return self.heard[-1:] == ["end"]


@pytest.mark.parametrize(
    ("said", "missing"),
    [((ATTACHING,), {"ebpf"}), ((READY, ATTACHING), {"ebpf.paused"}), ((READY, ATTACHING, SAMPLE), set())],
    ids=["at the start", "anew", "again"],
)
def test_a_new_start_is_said_until_it_looks_again(
    monkeypatch: pytest.MonkeyPatch, said: tuple[dict[str, object], ...], missing: set[str]
) -> None:
    lines = "\n".join(json.dumps(one) for one in (*said, END))
    helper = (sys.executable, "-c", f"import sys; print({lines!r}, flush=True); sys.stdin.read()")
    monkeypatch.setattr(Watched, "program", helper)
    with Watched() as collector:
        assert eventually(collector.has_heard_all)
    assert {one.what for one in collector.traces[-1].missing} == missing
