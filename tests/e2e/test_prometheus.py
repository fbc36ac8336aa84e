"""What `llmtop export` serves, in a real Prometheus: it is let in, read and typed, and the dashboard has answers."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import textwrap
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmtop.cli.export import MetricsServer
from llmtop.cli.exposition import exposition
from llmtop.model import Missing, Unknown, What
from tests.collectors.nvml_looks import wait_until
from tests.live_traces import TARGET, Scene, live_trace, probed

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="no prometheus here: apt-get install --no-install-recommends prometheus (it starts a service on port "
        "9090)",
    ),
]
DOCS = Path(__file__).resolve().parents[2] / "docs"
BOARD, MANUAL = DOCS / "grafana-dashboard.json", DOCS / "export.md"
TOKEN = "0123456789abcdef"
UP = {"open": 1.0, "token": 1.0, "stranger": 0.0}
"""By job: whether Prometheus may read it."""
READY_S = 30.0
Ask = Callable[..., Any]


def page() -> bytes:
    """Two GPUs with a busy server, and a source that is not there: each panel of the dashboard has something of it."""
    missing = Missing(What("nvml"), Unknown('no "driver"\\ here', "install it"))
    return exposition(replace(probed(live_trace(Scene(gpus=2))), missing=(missing,)), TARGET)


@contextmanager
def served(token: str) -> Iterator[str]:
    """The page as `llmtop export` serves it; where."""
    server = MetricsServer(("127.0.0.1", 0), page, token)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.url.removeprefix("http://")
    finally:
        server.shutdown()
        server.server_close()
        thread.join(READY_S)


def scrape_config(folder: Path, at: str, at_closed: str) -> Path:
    """As docs/export.md has it, with and without the token."""
    (folder / "token").write_text(f"{TOKEN}\n")
    targets = {"open": at, "token": at_closed, "stranger": at_closed}
    jobs: list[dict[str, object]] = [{"job_name": job, "static_configs": [{"targets": [targets[job]]}]} for job in UP]
    jobs[1]["authorization"] = {"credentials_file": str(folder / "token")}
    config = folder / "prometheus.yml"  # JSON is YAML
    config.write_text(json.dumps({"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}))
    return config


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks the API of a Prometheus that has read the page: a path and its parameters in, data out."""
    folder = tmp_path_factory.mktemp("prometheus")
    with socket.create_server(("127.0.0.1", 0)) as free:
        listen = f"127.0.0.1:{free.getsockname()[1]}"

    def ask(path: str, **parameters: str) -> Any:
        url = f"http://{listen}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=READY_S) as answer:  # raises for a query that does not parse
            return json.load(answer)["data"]

    with ExitStack() as stack:
        config = scrape_config(folder, stack.enter_context(served("")), stack.enter_context(served(TOKEN)))
        log = stack.enter_context((folder / "log").open("w"))
        arguments = ["--config.file", str(config), "--storage.tsdb.path", str(folder / "data")]
        process = subprocess.Popen(["prometheus", *arguments, "--web.listen-address", listen], stdout=log, stderr=log)
        stack.callback(process.wait, READY_S)
        stack.callback(process.terminate)
        wait_until(lambda: "Server is ready" in (folder / "log").read_text(), READY_S)
        wait_until(lambda: len(ask("query", query="up")["result"]) == len(UP), READY_S)
        yield ask


def test_who_has_the_token_is_let_in_and_who_has_none_is_told_so(ask: Ask) -> None:
    up = {one["metric"]["job"]: float(one["value"][1]) for one in ask("query", query="up")["result"]}
    assert up == UP
    errors = {one["scrapePool"]: one["lastError"] for one in ask("targets")["activeTargets"]}
    assert errors["open"] == errors["token"] == ""
    assert "401" in errors["stranger"]


def test_each_name_has_one_type_and_a_help_text(ask: Ask) -> None:
    told = {name: entries for name, entries in ask("metadata").items() if name.startswith("llmtop_")}
    assert set(told) == set(ask("label/__name__/values", **{"match[]": '{__name__=~"llmtop_.+"}'}))
    for name, entries in told.items():
        assert len(entries) == 1, name
        assert entries[0]["type"] == ("counter" if name.endswith("_total") else "gauge"), name
        assert entries[0]["help"], name


def test_promtool_has_nothing_to_say_of_the_page() -> None:
    checked = subprocess.run(["promtool", "check", "metrics"], input=page(), capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_configuration_and_the_alert_of_the_manual_are_valid(tmp_path: Path) -> None:
    blocks = re.findall(r"^ *```yaml\n(.*?)^ *```", MANUAL.read_text(), re.DOTALL | re.MULTILINE)
    for what, block in zip(("config", "rules"), blocks, strict=True):
        (tmp_path / what).write_text(textwrap.dedent(block))
        arguments = ["--syntax-only"] if what == "config" else ["--lint-fatal"]
        checked = subprocess.run(
            ["promtool", "check", what, *arguments, str(tmp_path / what)], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_answers_all_that_the_dashboard_asks(ask: Ask) -> None:
    board = json.loads(BOARD.read_text())
    asked = {target["expr"] for panel in board["panels"] for target in panel["targets"]}
    values = {expr: ask("query", query=expr.replace("$instance", ".+"))["result"] for expr in asked}
    assert [expr for expr, found in values.items() if not found] == []


def named(legend: str, labels: dict[str, str]) -> str:
    """A line's name, as Grafana makes it."""
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), legend)


def test_a_panel_calls_each_line_of_it_otherwise(ask: Ask) -> None:
    for panel in json.loads(BOARD.read_text())["panels"]:
        names = [
            named(target["legendFormat"], one["metric"])
            for target in panel["targets"]
            if panel["type"] == "timeseries"
            for one in ask("query", query=target["expr"].replace("$instance", ".+"))["result"]
        ]
        assert len(set(names)) == len(names), panel["title"]
