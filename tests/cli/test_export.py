"""`llmtop export`: names and units as Prometheus has them, nothing that is not known, and nobody who has no token."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llmtop import ids
from llmtop import vocabulary as v
from llmtop.analysis.rules.registry import diagnose
from llmtop.analysis.series.readings import latest
from llmtop.cli import main
from llmtop.cli.export import MetricsServer, address, is_own, tls_context
from llmtop.cli.exposition import exported, exposition
from llmtop.model import LIVE, NS_PER_S, Missing, Series, Trace, Track, TrackKind, Unknown, What
from tests.live_traces import AMPERE, NO_GPU, NOTHING, TARGET, Scene, live_trace, probed

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = 'a"b\\c\n# HELP x\x1b[2J<b>'
SCENES = {
    "two": Scene(gpus=2),
    "idle": Scene(is_idle=True),
    "ampere": AMPERE,
    "no-gpu": NO_GPU,
    "nothing": NOTHING,
    "hostile": Scene(hostile=HOSTILE),
}
TOKEN = "0123456789abcdef"


def parsed(trace: Trace) -> dict[tuple[str, tuple[str, ...]], float]:
    """Values by name and label values in the order of their names, as Prometheus's own parser reads them."""
    text = exposition(trace, TARGET).decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_values_are_those_of_the_panes_in_base_units() -> None:
    trace = live_trace(Scene(gpus=2))
    found = parsed(trace)
    gpu = trace.tracks[ids.gpu(0)]
    of_gpu = ("0", str(gpu.facts["uuid"]))
    sm, power = latest(trace, gpu.id, v.GPU_SM), latest(trace, gpu.id, v.GPU_POWER)
    assert not isinstance(sm, Unknown)
    assert found["llmtop_gpu_sm_ratio", of_gpu] == pytest.approx(sm / 100)
    assert found["llmtop_gpu_power_watts", of_gpu] == power
    cpu = latest(trace, ids.SELF, v.SELF_CPU)
    assert not isinstance(cpu, Unknown)
    assert found["llmtop_self_cpu_seconds_total", ()] == pytest.approx(cpu / NS_PER_S)
    assert found["llmtop_server_now_output_tokens_per_second", ()] > 100
    assert {name for name, _ in found} >= {
        "llmtop_roofline_flops_per_byte",
        "llmtop_roofline_roof_ratio",
        "llmtop_threads_cpu_cores",
        "llmtop_server_now_ttft_p99_at_least_seconds",
    }


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_each_scene_is_a_page_that_prometheus_reads(scene: Scene) -> None:
    trace = probed(live_trace(scene))
    samples = list(exported(trace, TARGET))
    assert len(parsed(trace)) == len(samples), "no two samples are one to Prometheus"
    names: dict[str, list[str]] = {}
    for one in samples:
        assert re.fullmatch(r"llmtop_[a-z0-9_]+[a-z0-9]", one.name)
        assert not re.search(r"_([a-z]+)_\1$", one.name)
        assert names.setdefault(one.name, [name for name, _ in one.labels]) == [name for name, _ in one.labels]


def test_programs_beside_the_server_are_few_series_however_many_they_are() -> None:
    trace = live_trace(Scene())
    end_ns = trace.end_ns
    used = {f"make-{i % 7}/{i}": 0.1 * (1 + i % 7) for i in range(70)}
    tracks = {ids.neighbour(i): Track(ids.neighbour(i), TrackKind.NEIGHBOUR, name) for i, name in enumerate(used)}
    series = {
        (track, v.NEIGHBOUR_CPU.name): Series.of(track, v.NEIGHBOUR_CPU, "/proc", [(end_ns, cores)])
        for track, cores in zip(tracks, used.values(), strict=True)
    }
    busy = replace(trace, tracks={**trace.tracks, **tracks}, series={**trace.series, **series})
    found = {labels: value for (name, labels), value in parsed(busy).items() if name == "llmtop_neighbour_cpu_cores"}
    assert found == pytest.approx(
        {("make-6",): 7.0, ("make-5",): 6.0, ("make-4",): 5.0, ("make-3",): 4.0, ("make-2",): 3.0, ("(others)",): 3.0}
    )


def test_what_is_not_known_is_absent_and_says_why() -> None:
    missing = Missing(What("nvml"), Unknown("there is no driver", "install it"))
    trace = replace(live_trace(NO_GPU), missing=(missing,))
    found = parsed(trace)
    assert not any(name.startswith(("llmtop_gpu_", "llmtop_roofline_")) for name, _ in found)
    assert found["llmtop_missing", ("there is no driver", "nvml")] == 1.0
    assert parsed(Trace(LIVE, end_ns=NS_PER_S)) == {}


def test_findings_are_there_while_they_hold() -> None:
    trace = live_trace()
    found = {labels: value for (name, labels), value in parsed(trace).items() if name == "llmtop_finding"}
    assert found
    assert found == Counter((one.rule, one.severity.value, one.subject) for one in diagnose(trace).findings)


def test_a_finding_whose_figures_change_stays_one_series() -> None:
    traces = [live_trace(Scene(is_moving=is_moving)) for is_moving in (True, False)]
    messages = [{one.message for one in diagnose(trace).findings} for trace in traces]
    series = [{labels for name, labels in parsed(trace) if name == "llmtop_finding"} for trace in traces]
    assert messages[0] != messages[1]
    assert series[0] == series[1]


def test_the_dashboard_asks_for_what_there_is() -> None:
    board = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"llmtop_\w+", target["expr"])
    }
    pages = (exposition(probed(live_trace(scene)), TARGET).decode() for scene in SCENES.values())
    there = {name for page in pages for name in re.findall(r"^(llmtop_\w+)", page, re.MULTILINE)}
    assert asked
    assert asked <= there


# -- over HTTP -------------------------------------------------------------------------------------------------


@contextmanager
def serving(
    token: str = "", page: bytes = b"x 1\n", tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, list[int]]]:
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        if not page:
            raise ValueError("secret")
        return page

    server = MetricsServer(("127.0.0.1", 0), make, token, names=("gpu7.lan",), tls=tls)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.url, made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def get(url: str, **headers: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_the_page_is_served_and_made_once_for_many_who_ask() -> None:
    with serving() as (url, made):
        assert [get(f"{url}/metrics") for _ in range(3)] == [(200, b"x 1\n")] * 3
        assert get(f"{url}/metrics?x=1")[0] == 200
        assert get(f"{url}/")[0] == 404
        assert get(f"{url}/../etc/passwd")[0] == 404
    assert len(made) <= 4


def test_without_the_token_nobody_is_let_in() -> None:
    with serving(TOKEN) as (url, made):
        wrong: tuple[dict[str, str], ...] = (
            {},
            {"Authorization": TOKEN},
            {"Authorization": "Bearer "},
            {"Authorization": f"Bearer {TOKEN}x"},
        )
        assert [get(f"{url}/metrics", **headers)[0] for headers in wrong] == [401] * 4
        assert get(f"{url}/nothing", Authorization="Bearer \u00e4")[0] == 401
        assert made == []
        assert get(f"{url}/metrics", Authorization=f"Bearer {TOKEN}") == (200, b"x 1\n")


def test_a_page_that_cannot_be_made_costs_itself_alone() -> None:
    with serving(page=b"") as (url, _):
        status, said = get(f"{url}/metrics")
        assert (status, b"secret" in said) == (500, False)
        assert get(f"{url}/")[0] == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9400", 200),
        ("localhost", 200),
        ("LOCALHOST.:9400", 200),
        ("[::1]:9400", 200),
        ("gpu7.lan:9400", 200),
        ("evil.attacker.example", 421),
        ("localhost.evil.example:9400", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil.example@127.0.0.1", 421),
        ("10.0.0.9", 421),
        ("", 421),
        ("a b", 421),
    ],
)
def test_a_request_is_for_a_name_of_this_machine(host: str, status: int) -> None:
    """A page of another site can reach 127.0.0.1 under a name of its own, and would read the answer."""
    with serving(TOKEN) as (url, _):
        assert get(f"{url}/metrics", Host=host, Authorization=f"Bearer {TOKEN}")[0] == status
    with serving() as (url, _):
        assert get(f"{url}/metrics", Host=host)[0] == status


def test_several_names_are_none() -> None:
    with serving() as (url, _), socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as asks:
        asks.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert asks.makefile("rb").readline().split()[1] == b"421"


def test_whoever_leaves_early_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    server = MetricsServer(("127.0.0.1", 0), lambda: b"")
    with server:
        for error in (BrokenPipeError(), ConnectionResetError(), TimeoutError(), ssl.SSLError(1, "no TLS")):
            try:
                raise error
            except OSError:
                server.handle_error(None, None)
        assert capsys.readouterr().err == ""
        try:
            raise ValueError("secret")
        except ValueError:
            server.handle_error(None, None)
    assert capsys.readouterr().err == "llmtop: a request failed: ValueError; please report this\n"


def test_it_serves_https_and_a_client_without_tls_holds_nobody_up(tmp_path: Path) -> None:
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("needs openssl, which makes the certificate")
    made = [openssl, "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*made, "-keyout", "key.pem", "-out", "cert.pem"], check=True, capture_output=True, cwd=tmp_path)
    with (
        serving(TOKEN, tls=tls_context(tmp_path / "cert.pem", tmp_path / "key.pem")) as (url, _),
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30),  # says nothing
    ):
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=30, context=trusting) as answer:
            assert answer.read() == b"x 1\n"


def test_without_a_token_a_page_has_no_names_that_others_chose() -> None:
    trace = live_trace(Scene())
    end_ns = trace.end_ns
    program = Track(ids.neighbour(9), TrackKind.NEIGHBOUR, "acme-payroll")
    used = Series.of(program.id, v.NEIGHBOUR_CPU, "GET http://alice.lan/x", [(end_ns, 2.0)])
    missing = (Missing(What("nvml"), Unknown("acme said no", "")), Missing(What("nvml"), Unknown("bobs said no", "")))
    trace = replace(
        trace,
        tracks={**trace.tracks, program.id: program},
        series={**trace.series, (program.id, v.NEIGHBOUR_CPU.name): used},
        missing=missing,
    )
    assert b"acme" in exposition(trace, TARGET)
    page = exposition(trace, TARGET, is_public=True).decode()
    assert not re.search("acme|bob|alice", page)
    assert 'llmtop_neighbour_cpu_cores{name="(others)"} 2.0' in page
    assert 'llmtop_missing{reason="(hidden)",what="nvml"} 2.0' in page
    assert 'llmtop_threads_cpu_cores{role="EngineCore"}' in page
    assert list(text_string_to_metric_families(page))


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.7", False), ("localhost.evil", False)],
)  # fmt: skip
def test_what_only_this_machine_reaches_needs_no_token(host: str, own: bool) -> None:
    assert is_own(host) is own


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--listen", "0.0.0.0:0"], 2, "others can reach 0.0.0.0: --token-file FILE keeps them out"),
        (["--listen", "0.0.0.0:0", "--token-file", "none"], 1, "none cannot be read: No such file"),
        (["--listen", "0.0.0.0:0", "--token-file", "short"], 2, "is no token: 16 characters at least"),
        (["--listen", "127.0.0.1:0", "--token-file", "empty"], 2, "is no token"),
        (["--listen", "192.0.2.1:9", "--token-file", "good"], 1, "192.0.2.1:9 cannot be listened at"),
        (["--tls-key", "good"], 2, "--tls-key needs its certificate: --tls-cert FILE"),
        (["--tls-cert", "none"], 1, "none: no certificate with its key that can be used (No such file or directory)"),
        (["--tls-cert", "good"], 1, "good: no certificate with its key that can be used"),
    ],
)
def test_faults_are_told_in_one_line(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("short", "abc\n"), ("empty", ""), ("good", f"{TOKEN}\nmore")):
        Path(name).write_text(text)
    assert main(["export", *arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("text", ["9400", "host", "host:", "host:99999", "http://x:1", "::1:9400", ""])
def test_an_address_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(Exception, match="is no address"):
        address(text)


def test_it_serves_this_machine_until_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--listen", "127.0.0.1:0", "--seconds", "0.5"]) == 0
    assert re.search(r"serving http://127\.0\.0\.1:\d+/metrics; Ctrl\+C ends it", capsys.readouterr().err)
