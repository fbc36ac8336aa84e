"""A shared copy: no secret is left in any place that a recording has, and all numbers are as they were."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.model import (
    NS_PER_S,
    Fact,
    Finding,
    Issue,
    Mark,
    MarkKind,
    Missing,
    ProcessEnd,
    Series,
    Severity,
    Stack,
    Trace,
    Track,
    TrackKind,
    Unknown,
    What,
)
from llmtop.recording.copies import RecordedRows, write_copy
from llmtop.recording.reader import RecordingReader
from llmtop.recording.row_reader import RowReader
from llmtop.recording.row_writer import RowWriter
from llmtop.recording.secrets import ASKED_FOR, TAKEN, SecretKind, Secrets
from llmtop.recording.shared import SharedCopy, shared_copy
from llmtop.recording.writer import RecordingWriter
from tests.live_traces import TARGET, live_trace

PLANTED = "s3cret"
"""In each secret: nothing of it may be left."""
HOST = "s3crethost.corp.example.com"
HOME = "/home/s3cretuser/llm"
KEY = "sk-s3cret0123456789"
COMMAND = f"/opt/s3cretvenv/bin/vllm serve /mnt/s3cretstore/llama-8b --api-key {KEY} --host 10.31.7.9"
LOG = "ValueError: cannot parse the prompt of s3cretcustomer"
SENTENCE = (
    f"on {HOST} and s3crethost: {HOME}/engine.py of s3cretuser, http://s3crethost:8000/metrics, mail me@s3cret.org, "
    f"https://s3cretname:pw@10.31.7.9/x, HF_TOKEN=hf_s3cretabcdef, Bearer s3cret.token.x; {COMMAND}; {LOG}"
)
ANONYMOUS = "s3cretmodel-7b"
SHOWN = {SecretKind.COMMAND, SecretKind.LOG, SecretKind.FOLDER, SecretKind.HOST, SecretKind.OTHER}


def planted(anonymous: str = "a-model-7b") -> Trace:
    """A secret in each place in which a trace has a text that is not llmtop's own."""
    trace = live_trace()
    root, end = ids.process(TARGET.root_pid), trace.end_ns
    facts: dict[str, Fact] = {"cmdline": COMMAND, "directory": HOME, "cgroup": "/s3cret.slice", "root": TARGET.root_pid}
    tracks = [
        replace(trace.tracks[root], facts=facts),
        Track(ids.HOST, TrackKind.HOST, HOST, facts={"tools": "perf", "py_spy": f"{HOME}/bin/py-spy"}),
        Track(
            ids.ended(7, 9),
            TrackKind.ENDED,
            "EngineCore",
            facts={"log_error": LOG, "log_end": SENTENCE, "log_command": SENTENCE, "how": Unknown(SENTENCE, SENTENCE)},
        ),
        Track(ids.endpoint(8000), TrackKind.ENDPOINT, SENTENCE, facts={"url": SENTENCE, "said": SENTENCE}),
        Track(ids.neighbour(9), TrackKind.NEIGHBOUR, f"train-{anonymous}", facts={"cgroup": "/s3cret.slice"}),
        Track(ids.server(8000), TrackKind.SERVER, "vLLM", facts={"model": anonymous, "any": SENTENCE}),
        Track(ids.gpu(0), TrackKind.GPU, "H100", facts={"uuid": f"GPU-{anonymous}", "pci_bus_id": f"0:{anonymous}"}),
    ]
    waker = v.labelled(v.THREAD_WAKES, SENTENCE)
    waker = replace(waker, title=SENTENCE)
    series = Series.of(root, waker, SENTENCE, [(end - NS_PER_S, 1.0), (end, 2.0)])
    return replace(
        trace,
        origin=replace(trace.origin, path=SENTENCE, host=HOST, facts={"anything": SENTENCE}),
        tracks={**trace.tracks, **{track.id: track for track in tracks}},
        series={**trace.series, (root, waker.name): series},
        stacks=(Stack((SENTENCE, f"step ({HOME}/engine.py:12)"), 1.0, "samples", SENTENCE),),
        marks=(
            Mark(end, MarkKind.PROCESS, root, SENTENCE, subject=SENTENCE, about=ProcessEnd(7, SENTENCE, True)),
            Mark(end, MarkKind.PROCESS, root, SENTENCE, about=ProcessEnd(7, Unknown(SENTENCE), True)),
        ),
        issues=(Issue(Severity.WARNING, "code", SENTENCE),),
        missing=(Missing(What("nvml"), Unknown(SENTENCE, SENTENCE)),),
        stacks_end_ns=end,
    )


TOLD = replace(
    TARGET,
    title=SENTENCE,
    model="/mnt/s3cretstore/llama-8b",
    facts={"command": COMMAND, "model_path": "/mnt/s3cretstore/llama-8b", "other": SENTENCE},
    config={"_name_or_path": SENTENCE},
    metrics_urls=(SENTENCE,),
    missing=(Missing(What("target.x"), Unknown(SENTENCE, SENTENCE)),),
    processes=tuple(replace(one, name=SENTENCE) for one in TARGET.processes),
)


def write(path: Path, trace: Trace, times: int = 3) -> Path:
    writer = RecordingWriter(path, {"llmtop": "1", "host": HOST, "utc_ns": 5, "trigger": SENTENCE})
    for second in range(times):
        writer.write(replace(trace, end_ns=trace.end_ns + second * NS_PER_S), TOLD)
    found = diagnose(trace).findings
    finding = Finding("rule", Severity.ERROR, SENTENCE, SENTENCE, (SENTENCE,), SENTENCE, SENTENCE, SENTENCE)
    writer.judge(trace.end_ns, SENTENCE, (*found, finding))
    writer.close()
    return path


def shared(path: Path, to: Path, secrets: Secrets) -> RecordedRows:
    rows = RecordedRows(path)
    assert not shared_copy(rows, to, secrets).left
    return rows


def all_of(path: Path) -> str:
    """All that stands in a recording: its bytes, and the texts of its blocks."""
    texts = (json.dumps(row.document, ensure_ascii=False) for row in RecordedRows(path))
    return "\n".join([path.read_bytes().decode("latin-1"), *texts])


def test_no_secret_is_left_anywhere(tmp_path: Path) -> None:
    path = write(tmp_path / "file", planted())
    assert all_of(path).count(PLANTED) > 300
    rows = shared(path, tmp_path / "copy", Secrets())
    assert rows.left_out == 0
    said = all_of(tmp_path / "copy")
    assert PLANTED not in said
    assert "10.31.7.9" not in said
    assert "a-model-7b" in said
    assert "llama-8b" in said


def test_an_anonymous_copy_has_no_models_programs_and_ids_either(tmp_path: Path) -> None:
    path = write(tmp_path / "file", planted(ANONYMOUS))
    shared(path, tmp_path / "named", Secrets())
    assert ANONYMOUS in all_of(tmp_path / "named")
    secrets = Secrets(is_anonymous=True)
    shared(path, tmp_path / "copy", secrets)
    said = all_of(tmp_path / "copy")
    assert PLANTED not in said
    assert "llama-8b" not in said
    assert {one.kind for one in secrets.removals} >= SHOWN | ASKED_FOR


def rewritten(path: Path, to: Path, changed: Callable[[Any], Any]) -> Path:
    """The same recording with other texts."""
    write_copy(RecordedRows(path), to, changed)
    return to


SENTENCES = frozenset(
    {"said", "subject", "message", "evidence", "action", "reason", "remedy", "how", "trigger", "verdict", "no_command"}
)
NEW_FIELDS = ("note", "comment", "labels_of", "prompt")
"""Such that this version does not know."""


def everywhere(sentence: str, document: Any, field: str = "") -> Any:
    """A document with a sentence behind each text that is one, and in fields that are not known."""
    if isinstance(document, str):
        return f"{document} {sentence}" if field in SENTENCES else document
    if isinstance(document, dict):
        more = dict.fromkeys(NEW_FIELDS, sentence) | ({f"of {sentence}": 1} if field in ("config", "facts") else {})
        return {key: everywhere(sentence, value, key) for key, value in document.items()} | (
            more if field not in ("tracks", "parts") and "samples" not in document else {}
        )
    if isinstance(document, list):
        return [everywhere(sentence, one, field) for one in document]
    return document


def name(least: int = 1, most: int = 9) -> st.SearchStrategy[str]:
    """None that is a word: "zq" stands in nothing that llmtop writes."""
    return st.from_regex(rf"zq[a-z0-9]{{{least},{most}}}", fullmatch=True)


@given(host=name(), user=name(), group=name(), path=name(), program=name(), model=name(6), log=name(6), key=name(6))
@settings(max_examples=4, deadline=None, phases=[Phase.generate])
def test_whatever_is_taken_out_stands_nowhere(
    tmp_path_factory: pytest.TempPathFactory,
    host: str,
    user: str,
    group: str,
    path: str,
    program: str,
    model: str,
    log: str,
    key: str,
) -> None:
    """Texts of every part say every secret, in words that tell nothing of what it is."""
    folder = tmp_path_factory.mktemp("shared")
    trace = live_trace()
    root = trace.tracks[ids.process(TARGET.root_pid)]
    tracks = [
        replace(root, facts={**root.facts, "cmdline": f"serve {path} {key}", "cgroup": f"/{path}/{group}"}),
        Track(ids.HOST, TrackKind.HOST, host),
        Track(ids.neighbour(9), TrackKind.NEIGHBOUR, program, facts={"cgroup": group}),
        Track(ids.server(8000), TrackKind.SERVER, "vLLM", facts={"model": model, "any": f"/home/{user}/x"}),
        Track(ids.ended(7, 9), TrackKind.ENDED, "EngineCore", facts={"log_error": log, "how": f"--api-key {key}"}),
    ]
    trace = replace(trace, tracks={**trace.tracks, **{track.id: track for track in tracks}})
    plain = write(folder / "plain", trace)
    sentence = (
        f"{host} x_{host}_y, of {user}, in /{path}/{group}, {program} (pid 9, {group}) 1.2 cores, "
        f"{program} (3 processes), {model} {log} my-{key} serve {path} {key}"
    )
    file = rewritten(plain, folder / "file", lambda document: everywhere(sentence, document))
    secrets = Secrets(is_anonymous=True)
    shared(file, folder / "copy", secrets)
    texts = [json.dumps(row.document) for row in RecordedRows(folder / "copy")]
    assert [one.what for one in secrets.removals if any(one.what in text for text in texts) and not one.is_word] == []
    for secret in {host, user, group, program, model, log, key, f"/{path}/{group}"}:
        assert not any(secret in text for text in texts), secret


def test_a_groups_name_goes_from_what_findings_say_of_programs(tmp_path: Path) -> None:
    """Of a container without a runtime's name, and of a group that is called like a word."""
    for group in ("40497ef3240e8b16370a63e72431e0f0", "jobs"):
        trace = live_trace()
        track = Track(ids.neighbour(9), TrackKind.NEIGHBOUR, "bash", facts={"cgroup": group})
        said = f"outside the server: bash (pid 9, {group}) 0.57 cores, cc1 (8 processes) 1 cores (/proc/PID/stat)"
        writer = RecordingWriter(tmp_path / group, {})
        writer.write(replace(trace, tracks={**trace.tracks, track.id: track}))
        writer.judge(trace.end_ns, "CPU-bound", (Finding("rule", Severity.ERROR, "x", "y", (said,), "", "", ""),))
        writer.close()
        secrets = Secrets(is_anonymous=True)
        shared(tmp_path / group, tmp_path / f"{group}.copy", secrets)
        said = all_of(tmp_path / f"{group}.copy")
        assert re.search(r"outside the server: program-\d \(pid 9, …\) 0.57 cores, cc1 \(8 processes\)", said)
        assert group not in said
        assert group in {one.what for one in secrets.removals}


def copied(path: Path, *documents: Any, kind: str = "mark", is_anonymous: bool = False) -> list[Any]:
    """What becomes of rows with these documents."""
    writer = RowWriter(path / "file")
    for document in documents:
        writer.append(kind, 0, json.dumps(document))
    writer.close()
    secrets = Secrets(is_anonymous=is_anonymous)
    assert shared_copy(RecordedRows(path / "file"), path / "copy", secrets) == SharedCopy(0, ())
    return [row.document for row in RecordedRows(path / "copy")]


def test_what_has_a_secrets_form_in_one_place_goes_from_where_it_has_none(tmp_path: Path) -> None:
    texts = ("--api-key hunter2hunter2", "see /data/alpha/zq7", "it was hunter2hunter2", "to/data/alpha/zq7-b")
    said = [one["said"] for one in copied(tmp_path, *({"said": text} for text in texts))]
    assert said == ["--api-key [redacted]", "see …", "it was [redacted]", "…"]


def test_a_socket_of_a_name_has_another_one_in_the_copy(tmp_path: Path) -> None:
    rows = copied(
        tmp_path,
        {"id": "server:s3cret.sock", "kind": "server", "name": "vLLM", "facts": {"model": "s3cret.sock"}},
        {"id": 1, "track": "server:s3cret.sock", "metric": "server.running", "unit": "1"},
        kind="track",
    )
    assert [rows[0]["id"], rows[1]["track"]] == ["server:name-1"] * 2
    assert rows[0]["facts"] == {"model": "name-1"}


def test_numbers_are_as_they_were(tmp_path: Path) -> None:
    path = write(tmp_path / "file", planted())
    shared(path, tmp_path / "copy", Secrets())
    before, after = RecordingReader(path), RecordingReader(tmp_path / "copy")
    assert after.times == before.times
    assert after.issues == ()
    for t_ns in before.times:
        was, now = before.trace(t_ns), after.trace(t_ns)
        assert [list(one) for one in now.series.values()] == [list(one) for one in was.series.values()]
        assert len(now.series) == len(was.series)
        assert list(now.tracks) == list(was.tracks)
        assert [track.kind for track in now.tracks.values()] == [track.kind for track in was.tracks.values()]
        assert [one.weight for one in now.stacks] == [one.weight for one in was.stacks]
        assert len(now.marks) == len(was.marks)
        assert now.sources.all == was.sources.all
        verdicts = [[one.rule for one in diagnose(trace).findings] for trace in (was, now)]
        assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("run /home/alice/zq.py as alice", "run … as user-1"),
        ("see /proc/12/status and /usr/bin/py-spy", "see /proc/12/status and /usr/bin/py-spy"),
        ("GET http://127.0.0.1:8000/metrics", "GET http://127.0.0.1:8000/metrics"),
        ("GET http://[::1]:8000/metrics", "GET http://[::1]:8000/metrics"),
        ("GET http://10.0.0.7:8000/metrics", "GET http://address-1:8000/metrics"),
        ("GET http://gpu7.lan:8000/metrics of gpu7.lan", "GET http://address-1:8000/metrics of address-1"),
        ("10.0.0.7 and 10.0.0.8 and 10.0.0.7", "address-1 and address-2 and address-1"),
        ("at fe80::1:2", "at address-1"),
        ("driver 580.159.04, 12.4.5", "driver 580.159.04, 12.4.5"),
        ("12.5 requests/s, tokens/s at 12:31:02", "12.5 requests/s, tokens/s at 12:31:02"),
        ("Authorization: Bearer abcdefgh", "Authorization: Bearer [redacted]"),
        ("vllm serve m --api-key x", "vllm serve m --api-key [redacted]"),
        ("nvapi-0123456789 x", "[redacted] x"),
        ('f=$(mktemp) && perf sched -o "$f"', 'f=$(mktemp) && perf sched -o "$f"'),
        ("its log ends with: the server has no memory", "its log ends with: …"),
        ("mend this and restart: ValueError: a key", "mend this and restart: …"),
        ("the server waits for Zebediah, who pays 4111111111111111", "the server waits for …, who pays …"),
    ],
)
def test_of_a_sentence_llmtops_own_words_stay(text: str, without: str) -> None:
    secrets = Secrets()
    secrets.learn({"said": text})
    assert secrets.without({"said": text}) == {"said": without}
    assert secrets.without({"said": without}) == {"said": without}


@pytest.mark.parametrize(
    ("document", "without"),
    [
        ({"kind": "stack", "id": 1, "unit": "samples", "state": "futex"}, None),
        ({"id": 7, "name": "void at::native::<unnamed>::kernel<float>(int)"}, None),
        ({"id": 7, "name": "step (/home/alice/engine.py:12)"}, {"id": 7, "name": "step (…/engine.py:12)"}),
        ({"facts": {"cpus": "0-3,8", "cpu": 3, "gpm": "supported"}}, None),
        ({"facts": {"cpu": "three"}}, {"facts": {}}),
        ({"facts": {"kv_cache_dtype": "fp8_e4m3", "user": "7"}}, {"facts": {"kv_cache_dtype": "fp8_e4m3"}}),
        ({"facts": {"kv_cache_dtype": "zq1a2b3c4"}}, {"facts": {"kv_cache_dtype": TAKEN}}),
        ({"facts": {"version": "0.11.0rc1+acme.7"}}, {"facts": {"version": "0.11.0rc1"}}),
        ({"config": {"hidden_size": 4, "auth": "x", "pin": 77, "model_type": "acme"}}, {"config": {"hidden_size": 4}}),
        ({"config": {"acme_mamba_state": 7}}, {"config": {"mamba": 1}}),
        ({"metric": "syscall.count|read", "track": "process:7"}, None),
        ({"metric": "server.finished|acme"}, {"metric": "server.finished|name-1"}),
        ({"registers": [1, 2], "note": "x", "t_ns": 7}, {"t_ns": 7}),
        ({"t_ns": "seven"}, {}),
        ({"kind": "gpu", "id": "gpu:0", "name": "NVIDIA H100 80GB HBM3"}, None),
    ],
)  # fmt: skip
def test_each_field_has_what_may_stand_in_it(document: Any, without: Any) -> None:
    secrets = Secrets()
    secrets.learn(document)
    assert secrets.without(document) == (document if without is None else without)


@pytest.mark.parametrize(
    ("remedy", "shared"),
    [
        ("uv pip install --python /home/alice/.venv py-spy", "uv pip install py-spy"),
        ("uv pip install --python=/srv/llm/.venv -U py-spy", "uv pip install -U py-spy"),
        ("/home/alice/.venv/bin/pip install py-spy", "pip install py-spy"),
        ("sudo /usr/bin/env x --python 3", "sudo /usr/bin/env x --python 3"),
        ("add --trace=osrt …", "add --trace=osrt …"),
    ],
)
def test_a_remedy_has_nothing_of_a_hidden_path_that_no_shell_can_find(remedy: str, shared: str) -> None:
    secrets = Secrets()
    document = {"missing": [{"what": "python", "reason": "see /home/alice/.venv", "remedy": remedy}]}
    secrets.learn(document)
    (told,) = secrets.without(document)["missing"]
    assert told["remedy"] == shared
    assert told["reason"] == "see …", "what is no command is hidden in its place"
    assert secrets.without(told)["remedy"] == shared


def test_what_is_one_stays_one_and_what_is_removed_is_counted() -> None:
    secrets = Secrets()
    secrets.learn({"host": "zq7.lan", "said": "/home/alice/a"})
    said = secrets.without({"host": "zq7.lan", "said": "zq7 and zq7.lan of alice", "n": 7, "evidence": ["zq7"]})
    assert said == {"host": "host-1", "said": "host-1 and host-1 of user-1", "evidence": ["host-1"]}
    assert [(one.kind, one.what, one.instead, one.places) for one in secrets.removals] == [
        (SecretKind.USER, "alice", "user-1", 1),
        (SecretKind.HOST, "zq7", "host-1", 2),
        (SecretKind.HOST, "zq7.lan", "host-1", 2),
        (SecretKind.OTHER, "n", "", 1),
    ]


def test_of_a_copy_nothing_is_taken_out_again() -> None:
    secrets = Secrets()
    secrets.learn({"host": "gpu7.lan"})
    copy = secrets.without({"host": "gpu7.lan"})
    again = Secrets()
    again.learn(copy)
    assert again.without(copy) == copy
    assert again.removals == ()


def test_names_of_machines_and_programs_go_from_their_tracks_however_short() -> None:
    secrets = Secrets(is_anonymous=True)
    block = {"tracks": {"host": {"kind": "host", "name": "vm"}, "neighbour:7": {"kind": "neighbour", "name": "bash"}}}
    secrets.learn(block)
    assert secrets.without(block) == {
        "tracks": {
            "host": {"kind": "host", "name": "host-1"},
            "neighbour:7": {"kind": "neighbour", "name": "program-1"},
        }
    }
    assert secrets.without({"kind": "thread", "name": "bash"}) == {"kind": "thread", "name": "bash"}
    assert Secrets().without(block["tracks"]["neighbour:7"]) == block["tracks"]["neighbour:7"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_program_that_is_called_like_the_servers_own_processes_keeps_its_name(is_first: bool) -> None:
    """Rules know an engine by its role: another server on the machine must not take it away."""
    own = {"kind": "process", "name": "VLLM::EngineCor", "facts": {"role": "EngineCore"}}
    other = {"kind": "neighbour", "name": "EngineCore"}
    secrets = Secrets(is_anonymous=True)
    for document in (own, other) if is_first else (other, own):
        secrets.learn(document)
    assert [secrets.without(one) for one in (own, other)] == [own, other]
    assert (
        secrets.without({"kind": "neighbour", "name": "EngineCore", "said": "EngineCore waits"})["said"]
        == "EngineCore waits"
    )


def test_a_core_dumps_name_does_not_tell_its_host() -> None:
    secrets = Secrets()
    shared = secrets.prose("llmtop open /data/dumps/core_1795495197_zq-7.lan_42.nvcudmp")
    assert shared == "llmtop open …/core_1795495197_host-1_42.nvcudmp"
    assert secrets.prose(shared) == shared


def test_accounts_of_nobody_and_short_lines_of_a_log_are_words() -> None:
    document = {
        "facts": {"log_end": "OK", "directory": "/home/user/llm"},
        "said": "it is OK for user in /home/user/llm",
    }
    secrets = Secrets()
    secrets.learn(document)
    found = secrets.without(document)
    assert found == {"facts": {"log_end": TAKEN, "directory": TAKEN}, "said": "it is OK for user in …"}


def test_a_short_name_that_is_a_word_goes_from_its_field_alone() -> None:
    document = {"model": "small", "said": "a small batch"}
    secrets = Secrets(is_anonymous=True)
    secrets.learn(document)
    assert secrets.without(document) == {"model": "model-1", "said": "a small batch"}


def test_a_host_that_is_called_like_llmtops_words_takes_none_of_them() -> None:
    document = {"kind": "gpu", "id": "gpu:0", "name": "H100", "host": "gpu", "said": "the gpu is busy"}
    secrets = Secrets()
    secrets.learn(document)
    assert secrets.without(document) == {**document, "host": "host-1"}


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "cut in a page": lambda content: content[:-100],
    "one byte": lambda content: content[: len(content) // 3] + b"\xff" + content[len(content) // 3 + 1 :],
    "zeros": lambda content: content[:8192] + bytes(4096) + content[12288:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_of_a_damaged_recording_what_can_be_read_is_copied(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = write(tmp_path / "file", planted(), times=70)
    path.write_bytes(damage(path.read_bytes()))
    shared(path, tmp_path / "copy", Secrets())
    assert PLANTED not in all_of(tmp_path / "copy")
    assert RowReader(tmp_path / "copy").lost == 0


def test_rows_of_a_newer_version_are_left_out_and_counted(tmp_path: Path) -> None:
    writer = RowWriter(tmp_path / "file")
    rows: Iterable[tuple[str, str | bytes]] = [
        ("about", json.dumps({"host": HOST})),
        ("hologram", json.dumps({"x": SENTENCE})),
        ("mark", "no JSON " + SENTENCE),
        ("moment", b"behind no stretch"),
        ("stretch", SENTENCE),
    ]
    for kind, data in rows:
        writer.append(kind, 0, data)
    writer.close()
    rows_of = shared(tmp_path / "file", tmp_path / "copy", Secrets())
    assert rows_of.left_out == 4
    assert PLANTED not in all_of(tmp_path / "copy")


def test_a_copy_writes_over_nothing_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "file", planted())
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(FileExistsError):
        shared(path, tmp_path / "copy", Secrets())
    assert (tmp_path / "copy").read_text() == "mine"

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RowWriter, "append", full)
    with pytest.raises(OSError, match="No space"):
        shared(path, tmp_path / "other", Secrets())
    assert not (tmp_path / "other").exists()


DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["host", "model", "kind", "x"]), inner),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_any_document_can_be_shared(document: Any) -> None:
    secrets = Secrets(is_anonymous=True)
    secrets.learn(document)
    found = secrets.without(document)
    assert found is None or type(found) is type(document)
    assert secrets.without(found) == found


@pytest.mark.parametrize(
    "text", ["a" * 30_000, "/a" * 15_000, "://" * 9_000, "1." * 15_000, "fe80:" * 6_000, "token" * 3_000 + ":"]
)
@pytest.mark.parametrize("field", ["said", "model"])
def test_long_texts_take_no_longer_than_they_are_long(text: str, field: str) -> None:
    """Each took minutes where a pattern began anew at each character."""
    document = {field: text}
    secrets = Secrets()
    secrets.learn(document)
    assert len(str(secrets.without(document))) <= len(text) + 99
