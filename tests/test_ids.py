"""Ids of tracks: what they look like is a contract of JSON and recordings, and known in one module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from llmtop import ids
from llmtop.model import TrackId, TrackKind

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("llmtop", "collectors", "parsers", "tui")
GPU = ids.gpu(0)
FILES = tuple(
    path
    for name in PACKAGES
    for path in sorted((ROOT / name).rglob("*.py"))
    if path.name != "ids.py" and "helper" not in path.parts  # the helper runs without llmtop, under any Python
)


@pytest.mark.parametrize(
    ("track", "text", "kind"),
    [
        (ids.HOST, "host", TrackKind.HOST),
        (ids.SELF, "self", TrackKind.SELF),
        (GPU, "gpu:0", TrackKind.GPU),
        (ids.gpu_instance(GPU, 3), "gpu:0/mig:3", TrackKind.GPU_INSTANCE),
        (ids.gpu_process(GPU, 4242), "gpu:0/process:4242", TrackKind.GPU_PROCESS),
        (ids.stream(GPU, 4242, 13), "gpu:0/process:4242/stream:13", TrackKind.STREAM),
        (ids.server(8000), "server:8000", TrackKind.SERVER),
        (ids.server("vllm.sock"), "server:vllm.sock", TrackKind.SERVER),
        (ids.endpoint(8000), "endpoint:8000", TrackKind.ENDPOINT),
        (ids.process(4242), "process:4242", TrackKind.PROCESS),
        (ids.thread(4242, 4243), "thread:4242/4243", TrackKind.THREAD),
        (ids.neighbour(7), "neighbour:7", TrackKind.NEIGHBOUR),
        (ids.ended(7, 99), "ended:7/99", TrackKind.ENDED),
        (ids.of_rank(GPU, "rank 3", is_only_gpu=True), "gpu:rank 3", TrackKind.GPU),
        (ids.of_rank(ids.process(7), "node.a", is_only_gpu=False), "process:7@node_a", TrackKind.PROCESS),
        (ids.of_rank(ids.HOST, "rank 3", is_only_gpu=False), "host@rank 3", TrackKind.HOST),
    ],
)
def test_an_id_is_the_text_that_json_has_and_tells_its_kind(track: TrackId, text: str, kind: TrackKind) -> None:
    assert track == text
    assert ids.kind(track) is kind


@pytest.mark.parametrize("track", ["gpu:0", "server:8000", "endpoint:8000", "host", "", "process:x"])
def test_what_is_of_no_process_has_no_pid(track: str) -> None:
    with pytest.raises(ValueError, match=r"no process|invalid literal"):
        ids.pid(track)


def test_parts_of_ids() -> None:
    assert ids.gpu_index("gpu:11") == 11
    assert ids.port(ids.server("vllm.sock")) == "vllm.sock"
    assert ids.tid(ids.thread(7, 8)) == 8
    assert ids.is_first_thread(ids.thread(7, 7))
    assert not ids.is_first_thread(ids.thread(7, 8))
    assert ids.is_gpu_process("gpu:1/process:7", "gpu:1")
    assert not ids.is_gpu_process("gpu:11/process:7", "gpu:1")


PREFIXES = (*(f"{kind.value}:" for kind in TrackKind), "/process:", "/mig:", "/stream:")


def literals(tree: ast.Module) -> list[tuple[int, str]]:
    """Texts of code, with their lines; what documents it, and examples in it, is left out."""
    docs = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]


def test_no_other_file_knows_what_an_id_looks_like() -> None:
    """None begins a text with "process:" or cuts one off: a made id has one in its literal, and so has a parsed one."""
    assert len(FILES) > 300
    may_have = re.compile("[\"'}](?:" + "|".join(PREFIXES) + ")")
    told = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in FILES
        if may_have.search(whole := path.read_text())
        for line, text in literals(ast.parse(whole))
        if text.startswith(PREFIXES) and not text[text.index(":") + 1 :].startswith((" ", ":"))
    ]
    assert told == []


def test_no_track_id_is_cut_at_its_colon() -> None:
    cut = re.compile(r"(?:\b(?:track|thread|process|gpu)|track\.id)\.(?:r?partition|r?split|removeprefix|startswith)\(")
    assert cut.search("index = track.partition(':')")
    assert cut.search("if span.track.id.startswith(GPU):")
    told = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in FILES
        for line in path.read_text().splitlines()
        if cut.search(line)
    ]
    assert told == []


def test_no_other_file_knows_how_labels_stand_in_names() -> None:
    """`llmtop.vocabulary` alone makes and reads "syscall.latency|read|1024"."""
    made_or_read = re.compile(r"""partition\(["']\|["']\)|["']\|["'] (not )?in |\.name\}\|""")
    assert made_or_read.search('f"{v.SYSCALL_COUNT.name}|{name}"')
    assert made_or_read.search('metric.name.rpartition("|")')
    told = [str(path.relative_to(ROOT)) for path in FILES if made_or_read.search(path.read_text())]
    assert told == []
