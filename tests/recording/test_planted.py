"""Planted secrets: none is left in a copy, plain or anonymous, nor in any page that is made of it.

Each is in every kind of field of a recording, and in fields that no version knows. Copies once had some of `LISTED`;
`MORE` are others, of other shapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from llmtop import ids
from llmtop.analysis.rules.registry import diagnose
from llmtop.cli import main
from llmtop.model import (
    Fact,
    Finding,
    Issue,
    Mark,
    MarkKind,
    Missing,
    Severity,
    Stack,
    Track,
    TrackId,
    TrackKind,
    Unknown,
    What,
)
from llmtop.recording.copies import RecordedRows
from llmtop.recording.secrets import Secrets
from llmtop.recording.shared import shared_copy
from llmtop.recording.writer import RecordingWriter
from llmtop.text import redact, shell_command
from tests.live_traces import TARGET, live_trace
from tests.recording.test_secrets import all_of, rewritten

BODY = "Zq0rX7Kd9vPw2LmT4sYb8NcF"
"""Of keys: no word of anybody's."""
KEYS = {
    "openai": f"sk-{BODY}",
    "github": f"ghp_{BODY}",
    "github fine": f"github_pat_{BODY}",
    "aws id": "AKIAZQXKDVPWLMTYSBNC",
    "jwt": f"eyJ{BODY}.eyJ{BODY}.{BODY}",
    "slack": f"xoxb-{BODY}",
    "npm": f"npm_{BODY}",
    "telegram": f"123456789:AA{BODY}",
    "google": f"AIza{BODY}",
    "hugging face": f"hf_{BODY}",
    "nvidia": f"nvapi-{BODY}",
    "stripe": f"rk_live_{BODY}",
    "stripe hook": f"whsec_{BODY}",
    "gitlab": f"glpat-{BODY}",
    "pypi": f"pypi-{BODY}",
    "bearer": f"Authorization: Bearer {BODY}",
    "basic": f"Authorization: Basic {BODY}==",
    "amazon's signature": f"https://b.s3.amazonaws.com/x?X-Amz-Credential=a&X-Amz-Signature={BODY}",
    "url with a password": f"postgres://zquser:{BODY}@db.zqcorp.example/prod",
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
    "azure": f"DefaultEndpointsProtocol=https;AccountName=zqname;AccountKey={BODY}==",
    "option": f"--api-key {BODY}",
    "variable": f"DATABASE_PASSWORD={BODY}",
}
"""What looks like a key: hidden where it is read, and in functions' names too."""
LISTED = {
    "aws secret": f"aws {BODY}/K7MDENG/{BODY}",
    "own key of a model's file": f"local-{BODY.lower()}",
    "slack hook": f"https://hooks.slack.com/services/T000/B000/{BODY}",
    "user": "/home/zquser/llm of zquser",
    "mail": "zqperson@zqcorp.example",
    "ipv4": "10.123.45.67",
    "ipv6": "2001:db8:7c3f::9a1d",
    "host": "gpu-node-17.zqcorp.internal",
    "folder": "/data/zqtenant/zqproject",
    "a user's words": "prompt PatientZqSmithHasDiabetes",
}
MORE = {
    "groq": f"gsk_{BODY}",
    "replicate": f"r8_{BODY}",
    "xai": f"xai-{BODY}",
    "perplexity": f"pplx-{BODY}",
    "tailscale": f"tskey-{BODY}",
    "docker": f"dckr_pat_{BODY}",
    "shopify": f"shpat_{BODY}",
    "sendgrid": f"SG.{BODY}.{BODY}",
    "google oauth": f"ya29.{BODY}",
    "google client": f"GOCSPX-{BODY}",
    "vault": f"hvs.{BODY}",
    "databricks": "dapi0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "age": f"AGE-SECRET-KEY-1{BODY.upper()}",
    "aws session": "ASIAZQXKDVPWLMTYSBNC",
    "ssh": f"ssh-rsa AAAA{BODY}+/{BODY} zq@zqhost",
    "json": f'{{"client_secret": "{BODY}"}}',
    "yaml": f"password: {BODY}",
    "cookie": f"Cookie: zqsession={BODY}",
    "other scheme": f"'Authorization': 'Token {BODY}'",
    "passphrase": f"--passphrase {BODY}",
    "query": f"https://zqapi.example/v1?access_token={BODY}&x=1",
    "signature": f"GET /x?sv=2024&sig={BODY}%3D",
    "redis": f"redis://:{BODY}@zqcache:6379/0",
    "discord": f"https://discord.com/api/webhooks/1234/{BODY}",
    "hexadecimal": "9f86d081884c7d659a2feaa0c55ad015",
    "uuid": "3fa85f64-5717-4562-b3fc-2c963f66afa6",
    "base64": "WnFTZWNyZXRXb3JkT2ZUaGVEYXk5OTg4Nzc=",
    "card": "4929123456781234",
    "account": "DE89370400440532013000",
    "telephone": "+49-171-5550123-99",
    "hardware address": "3c:7c:3f:1e:9a:1d of 3C-7C-3F-1E-9A-1D",
    "name": "Zqürgen Müßiggangzq",
    "other letters": "患者张伟的病历",
    "other letters, cyrillic": "Зинаида Петровна",
    "windows": "C:\\Users\\zqbob\\geheim.txt",
    "share": "\\\\zqserver\\zqshare",
    "repository": "git@git.zqcorp.example:zqteam/zqrepo.git",
    "pod": "zqvllm-7d9f8b6c5-x2x4k",
    "bucket": "s3://zqbucket/zqweights",
    "lines": f"first\nzqsecondline {BODY}",
    "percent": "zq%20geheim%2Fwort",
    "adapter": "zq-lora-acmebank",
    "phrase": "correct zqhorse battery zqstaple",
    "upper case": "ZQGEHEIM_WORT",
    "camel": "zqGeheimesWortDerFirma",
    "with a number": "zqgeheim42",
}
SECRETS = {**KEYS, **LISTED, **MORE}
MARKS = (
    *(BODY, "zq", "Zq", "ZQ", "PatientZq", "10.123.45.67", "7c3f::9a1d", "gpu-node-17", "AKIA", "ASIA", "dapi0f"),
    *(
        "9f86d081",
        "3fa85f64",
        "WnFTZWNy",
        "4929",
        "DE8937",
        "5550123",
        "3c:7c:3f",
        "3C-7C",
        "患者",
        "张伟",
        "Зинаида",
        "üßiggang",
    ),
    *("geheim", "GEHEIM", BODY.lower(), BODY.upper(), "x2x4k", "battery"),
)
"""Of each secret something that nobody else's text has."""


def planted(secrets: dict[str, str], words: dict[str, str], names: dict[str, str]) -> Any:
    """A trace with them in all sorts of fields.

    Args:
        secrets: What stands in sentences, labels, facts, logs, and so on.
        words: The same, for fields with names that stay.
        names: For fields with names of programs and models, which stay unless a copy is anonymous.
    """
    trace = live_trace()
    end, root = trace.end_ns, trace.tracks[ids.process(TARGET.root_pid)]
    texts = list(secrets.values())
    tracks = [replace(root, facts={**root.facts, "cmdline": " ".join(texts), "directory": "/data/zqtenant/zqproject"})]
    for i, text in enumerate(texts):
        line = f"ValueError: {text}"
        told: dict[str, Fact] = {"log_error": line, "log_command": f"tail /zq/{i}.log", "how": text, "pid": 9000 + i}
        labels: dict[str, Fact] = {
            "cache_dtype": text,
            "user": str(4929123456 + i),
            "setting.kv_cache_dtype": text,
            "setting.kv_cache_dtype.source": f'cache_dtype="{text}" of its metrics',
            f"label_{i}": text,
            text: "yes",
            "version": f"1.2+{text}",
        }
        tracks += [
            Track(ids.ended(9000 + i, i), TrackKind.ENDED, "EngineCore", facts=told),
            Track(ids.server(9000 + i), TrackKind.SERVER, "vLLM", facts=labels),
            Track(
                ids.endpoint(9000 + i),
                TrackKind.ENDPOINT,
                f":{i}",
                facts={"said": Unknown(text, f"see {text}"), "url": text},
            ),
            Track(TrackId(f"server:{text.replace('/', '')}"), TrackKind.SERVER, "vLLM"),
        ]
    for i, text in enumerate(words.values()):
        tracks.append(
            Track(ids.thread(4242, 7000 + i), TrackKind.THREAD, text[:40], ids.process(4242), {"wchan": text})
        )
    for i, text in enumerate(names.values()):
        tracks.append(Track(ids.neighbour(6000 + i), TrackKind.NEIGHBOUR, text, facts={"cgroup": f"/{text}"}))
    found = [
        Finding(
            "rule",
            Severity.ERROR,
            text,
            f"the server says {text}",
            (f"its log ends with: {text}", text),
            text,
            f"run {text}",
            text,
        )
        for text in texts
    ]
    return (
        replace(
            trace,
            tracks={**trace.tracks, **{track.id: track for track in tracks}},
            stacks=tuple(
                Stack((f"step ({text})" if "/" in text else text, "main"), 1.0, "samples", "futex")
                for text in words.values()
            ),
            marks=tuple(
                Mark(end, MarkKind.PROCESS, root.id, text, subject=text, about=Unknown(text, text)) for text in texts
            ),
            issues=tuple(Issue(Severity.WARNING, "code", text) for text in texts),
            missing=tuple(Missing(What("nvml"), Unknown(text, text)) for text in texts),
            stacks_end_ns=end,
        ),
        found,
    )


def unknown_fields(document: Any, texts: Iterator[str]) -> Any:
    """A document of a newer version, which has something in fields that this one does not know."""
    if isinstance(document, dict):
        more = {} if "groups" in document else {"prompt": next(texts), "zqfield": {"name": next(texts), "kind": "x"}}
        return {key: unknown_fields(value, texts) for key, value in document.items()} | more
    return [unknown_fields(one, texts) for one in document] if isinstance(document, list) else document


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    names = {"program": "zq-bank-job", "script": f"python {BODY}.py"}
    trace, findings = planted(SECRETS, KEYS, names)
    writer = RecordingWriter(
        folder / "plain", {"llmtop": "1", "host": "gpu-node-17.zqcorp.internal", "trigger": MORE["name"]}
    )
    config: dict[str, Fact] = {f"key_{i}": text for i, text in enumerate(SECRETS.values())}
    target = replace(
        TARGET,
        model=f"/data/zqtenant/{BODY}",
        title=" ".join(SECRETS.values()),
        config={**config, "pin": 4929123456781234, "auth": BODY, "hidden_size": 4096, "model_type": MORE["adapter"]},
        facts={"command": " ".join(SECRETS.values()), "told.quantization": MORE["adapter"]},
        metrics_urls=(KEYS["url with a password"],),
    )
    writer.write(trace, target)
    writer.judge(trace.end_ns, " ".join(SECRETS.values()), (*diagnose(trace).findings, *findings))
    writer.close()
    texts = cycle(SECRETS.values())
    return rewritten(folder / "plain", folder / "file", lambda document: unknown_fields(document, texts))


def marks_in(text: str) -> list[str]:
    return [mark for mark in MARKS if mark in text]


def test_they_are_many_and_all_in_the_recording(recording: Path) -> None:
    assert len(KEYS) + len(LISTED) >= 33
    assert len(MORE) >= 33
    assert marks_in(all_of(recording)) == list(MARKS)


@pytest.fixture(scope="module", params=["plain", "anonymous"])
def copy(request: pytest.FixtureRequest, recording: Path) -> Path:
    path = recording.parent / f"{request.param}.llmtop"
    assert shared_copy(RecordedRows(recording), path, Secrets(is_anonymous=request.param == "anonymous")).left == ()
    return path


def without_names(copy: Path, text: str) -> str:
    """A text without what a plain copy keeps: names of programs and models, of these the end of their path."""
    for name in ("zq-bank-job", f"python {BODY}.py", BODY) if copy.name.startswith("plain") else ():
        text = text.replace(name, "")
    return text


def test_none_is_left_in_a_copy(copy: Path) -> None:
    texts = [json.dumps([row.document, row.directory], ensure_ascii=False) for row in RecordedRows(copy)]
    assert marks_in(without_names(copy, "\n".join(texts))) == []
    packed = without_names(copy, copy.read_bytes().decode("latin-1"))
    assert [mark for mark in marks_in(packed) if len(mark) > 3] == [], "two letters stand in any numbers"


@pytest.mark.parametrize("how", ["text", "md", "csv", "json", "html", "perfetto"])
def test_none_is_left_in_a_page(copy: Path, how: str, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["report", str(copy), "--format", how]) == 0
    text = capsysbinary.readouterr().out.decode("latin-1" if how == "perfetto" else "utf-8")
    assert [mark for mark in marks_in(without_names(copy, text)) if len(mark) > 3 or how != "perfetto"] == []


@pytest.mark.parametrize("secret", KEYS)
def test_what_looks_like_a_key_is_hidden_where_it_is_read(secret: str) -> None:
    hidden = redact(f"so it says: {KEYS[secret]}")
    told = shell_command(["serve", KEYS[secret], f"--x={KEYS[secret]}", f"https://zq:{BODY}@host/?sig={BODY}"])
    for text in (hidden, told):
        assert BODY not in text
        assert "ZQX" not in text
    assert redact(hidden) == hidden
