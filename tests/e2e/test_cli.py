"""The real command line in a real pseudo-terminal: what a user meets, from the first key to the prompt after."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from llmtop import procfs
from llmtop.cli import main
from tests.e2e.terminal import Terminal, TerminalFactory
from tests.fake_nvml.build import FakeNvml
from tests.parsers.sample_reports import DECODE, LADDER, kernel, report

ROOT = Path(__file__).resolve().parents[2]
LLMTOP = [sys.executable, "-m", "llmtop"]
HOSTILE = (
    b"a[/b]c [@click=app.quit]d \x1b[2Je\x1b]0;owned\x07 \xe2\x80\xaef \xe4\xbd\xa0\xe5\xa5\xbd [lambda() (instance 1)]"
)
COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")


def llmtop(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LLMTOP, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, **options},
    )


def leaves_cleanly(terminal: Terminal, exit_code: int = 0) -> None:
    assert terminal.wait_exit() == exit_code
    assert terminal.unrestored() == []


def test_open_shows_a_report_and_leaves(terminal: TerminalFactory) -> None:
    screen = terminal([*LLMTOP, "open", str(LADDER)], columns=40, lines=12)
    screen.wait_for("sgemm")
    for digit in "2345671":
        screen.press(digit)
    screen.wait_for("sgemm")
    screen.press("q")
    leaves_cleanly(screen)


def test_open_survives_resizing(terminal: TerminalFactory) -> None:
    screen = terminal([*LLMTOP, "open", str(DECODE)], columns=120, lines=40)
    screen.wait_for("nvjet")
    for columns, lines in ((80, 24), (20, 5), (200, 60), (1, 1), (120, 40)):
        screen.resize(columns, lines)
    screen.wait_for("nvjet")
    screen.press("q")
    leaves_cleanly(screen)
    left = screen.raw.rpartition(b"\x1b[?1049l")[0].rpartition(b"\x1b[H\x1b[2J")[2]
    assert re.fullmatch(rb"(\x1b\[[<?]?[0-9]*[hlu])*", left), "what tmux 3.3 keeps of a resized screen is blank"


def test_hostile_names_are_shown_not_obeyed(terminal: TerminalFactory, tmp_path: Path) -> None:
    path = tmp_path / "hostile.ncu-rep"
    path.write_bytes(report(kernel(HOSTILE), kernel(b"wide\xe4\xbd\xa0" * 3000)))
    screen = terminal([*LLMTOP, "open", str(path)], columns=240, lines=30)
    text = screen.wait_for("a[/b]c")
    assert "[@click=app.quit]d" in text
    assert "你好" in text.replace(" ", "") or "你 好" in text
    screen.press("enter")
    screen.wait_for("Metrics")
    screen.press("escape", "q")
    leaves_cleanly(screen)
    assert b"\x1b]0;owned" not in screen.raw
    assert "\u202e".encode() not in screen.raw


def test_a_signal_restores_the_terminal(terminal: TerminalFactory) -> None:
    screen = terminal([*LLMTOP, "open", str(LADDER)])
    screen.wait_for("sgemm")
    screen.signal(signal.SIGTERM)
    leaves_cleanly(screen, 128 + signal.SIGTERM)


CRASHING_PANE = """
import sys
from llmtop.tui.panes.server import ServerPane
def draw(self, *args, **options): raise RuntimeError("boom [/b]")
ServerPane.draw = ServerPane.view = draw
from llmtop.cli import main
sys.exit(main(["--attach", sys.argv[1], "--interval", "0.25"]))
"""


SHIFT_LEFT = "\x1b[1;2D"


def test_a_crash_in_a_pane_costs_only_that_pane(
    fake_nvml_library: Path, tmp_path: Path, terminal: TerminalFactory
) -> None:
    machine = FakeNvml(fake_nvml_library, tmp_path / "control")
    command = [sys.executable, "-c", CRASHING_PANE, str(os.getpid())]
    screen = terminal(command, columns=120, lines=40, env=dict(machine.env))
    screen.wait_for("this pane failed: RuntimeError: boom [/b]")
    for shown_beside in ("█ cpu", "FLOP/B", "GPM"):
        screen.wait_for(shown_beside)
    screen.press("q")
    leaves_cleanly(screen)


def test_keys_of_the_live_screen_and_the_cursor_of_its_lanes(terminal: TerminalFactory) -> None:
    screen = terminal([*LLMTOP, "--attach", str(os.getpid()), "--interval", "0.25"])
    screen.wait_for("live")
    screen.press("space")
    screen.wait_for("paused")
    screen.press("space")
    screen.wait_for("live")
    screen.press("?")
    screen.wait_for("Esc closes")
    screen.press("escape", "d")  # in one packet, as over a network
    screen.wait_for("Diagnosis")
    screen.press("escape", "4", "z")
    screen.wait_for("blocked on")
    screen.press("z")
    screen.resize(120, 40)
    screen.wait_for("main CPU")
    screen.press("6")
    for keys in (["left"], [SHIFT_LEFT], ["home"]):
        screen.press(*keys)
        screen.wait_for("ago (Esc: now)")
        screen.wait_for(lambda text: re.search(r"6 CPU-GPU  ◀ \d+\.\d s ago \d\d:\d\d:\d\d", text))
        screen.press("escape")
        screen.wait_for(lambda text: "ago (Esc: now)" not in text)
    screen.press("z", "left", "h", "+", "-")
    screen.wait_for("ago (Esc: now)")
    screen.press("end")
    screen.wait_for("live")
    screen.press("q")
    leaves_cleanly(screen)


def test_without_colours_and_in_an_ascii_locale_neither_is_written(terminal: TerminalFactory) -> None:
    asked = {"NO_COLOR": "1", "LC_ALL": "POSIX", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    screen = terminal([*LLMTOP, "open", str(LADDER)], env=asked)
    screen.wait_for("sgemm")
    screen.press("3")
    screen.wait_for("FLOP")
    screen.press("q")
    leaves_cleanly(screen)
    assert screen.raw.isascii()
    parameters = {p for code in COLOUR.findall(screen.raw) for p in code[2:-1].split(b";") if p}
    colours = {p for p in parameters if 30 <= int(p) <= 49 and int(p) not in (39, 49)} | (parameters & {b"38", b"48"})
    assert not colours


def test_live_leaves_by_itself_and_needs_no_answering_terminal(terminal: TerminalFactory) -> None:
    screen = terminal([*LLMTOP, "--attach", str(os.getpid()), "--interval", "0.25", "--seconds", "1"], answers=False)
    leaves_cleanly(screen)
    assert b"live" in screen.raw


BAD_USES = [
    (["report", "no-such-file"], 1, "no-such-file"),
    (["open", str(LADDER)], 1, "not a terminal"),
    (["report", os.devnull], 1, os.devnull),
    (["report", "benchmarks"], 1, "benchmarks is a folder without reports"),
    (["report", "Makefile"], 1, "Makefile"),
    (["snapshot", "--json", "--attach", "4194305"], 1, "4194305"),
    (["snapshot", "--json", "--attach", "0"], 2, "neither a process id nor a container's name"),
    (["snapshot", "--json", "--attach", "no-such-box"], 1, "no process and no container no-such-box here"),
    (["--attach", "4194305"], 1, ""),
    (["4242"], 2, "--attach 4242"),
    (["Makefile"], 2, "llmtop open Makefile"),
    (["frobnicate"], 2, "frobnicate"),
    (["--interval", "0"], 2, "interval"),
    (["report", "README.md", "--format", "xml"], 2, "xml"),
]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"), BAD_USES, ids=lambda v: " ".join(v) if isinstance(v, list) else ""
)
def test_bad_use_is_one_line_and_an_exit_code(
    arguments: list[str],
    exit_code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    try:
        code: object = main(arguments)
    except SystemExit as left:  # as argparse leaves
        code = left.code
    assert code == exit_code
    out, err = capsys.readouterr()
    assert says in err
    assert "Traceback" not in err
    assert out == ""
    if exit_code == 1:
        assert err.count("\n") == 1
        assert err.startswith("llmtop: ")


def test_dumb_terminal_is_told_what_to_use_instead(terminal: TerminalFactory) -> None:
    screen = terminal([*LLMTOP, "open", str(LADDER)], env={"TERM": "dumb"})
    assert screen.wait_exit() == 1
    assert "TERM=dumb" in screen.screen_text()
    assert b"\x1b[?1049h" not in screen.raw


def test_missing_file_is_told_before_the_screen(terminal: TerminalFactory) -> None:
    screen = terminal([*LLMTOP, "open", "no-such-file"])
    assert screen.wait_exit() == 1
    assert "no-such-file" in screen.screen_text()
    assert b"\x1b[?1049h" not in screen.raw


def test_damaged_report_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(report(kernel(), kernel())[:-7])
    assert main(["report", str(path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "truncated" in err


def test_closed_pipe_is_no_fault() -> None:
    pipeline = f"{sys.executable} -m llmtop report {LADDER} --format json | head -c 10"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {pipeline}"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stderr == ""


def test_a_reader_that_left_before_the_last_buffer_is_no_fault() -> None:
    """Little output stands in a buffer until the end, unless Python is told not to have one."""
    reader, writer = os.pipe()
    os.close(reader)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run([*LLMTOP, "--help"], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")


TO = [
    (("--help",), "> /dev/full", "No space left on device"),
    (("snapshot", "--json", "--seconds", "0.1"), "> /dev/full", "No space left on device"),
    (("report", str(LADDER), "--format", "json"), "> /dev/full", "No space left on device"),
    (("report", str(LADDER), "--format", "json"), ">&-", "it is closed"),
]


@pytest.mark.parametrize(("command", "to", "why"), TO)
def test_output_that_cannot_be_written_is_told_in_one_line(command: tuple[str, ...], to: str, why: str) -> None:
    script = f'"$@" {to}'
    done = subprocess.run(
        ["bash", "-c", script, "-", *LLMTOP, *command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    said = f"llmtop: standard output cannot be written: {why}; send it where there is room: > FILE\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_report_into_a_file_needs_no_standard_output(tmp_path: Path) -> None:
    output = tmp_path / "report.txt"
    script = '"$@" >&- 2>&-'
    command = [*LLMTOP, "report", str(LADDER), "-o", str(output)]
    assert subprocess.run(["bash", "-c", script, "-", *command], check=False, cwd=ROOT).returncode == 0
    assert "Findings" in output.read_text()


def test_a_locale_that_asks_for_ascii_gets_it() -> None:
    """Where nothing else says how text is encoded, Python writes UTF-8 in the locale C too."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    done = subprocess.run(
        [*LLMTOP, "report", str(LADDER)], capture_output=True, check=False, cwd=ROOT, env={**env, "LC_ALL": "C"}
    )
    assert (done.returncode, done.stdout.isascii()) == (0, True)


def test_snapshot_sees_the_gpu(fake_nvml_library: Path, tmp_path: Path) -> None:
    machine = FakeNvml(fake_nvml_library, tmp_path / "control")
    done = llmtop("snapshot", "--json", "--seconds", "1", **machine.env)
    document = json.loads(done.stdout)
    (gpu,) = document["gpus"]
    assert gpu["name"].startswith("NVIDIA H100")
    assert gpu["dram"] is not None


def test_doctor_lists_what_it_can_and_cannot_see(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "llmtop.doctor/1"
    assert all(check["reason"] for check in document["checks"] if not check["ok"])
    main(["doctor"])
    text = capsys.readouterr().out
    assert all(check["what"] in text for check in document["checks"])


# -- a server, to the end of this file: below it this process is one too ----------------------------------------


@pytest.fixture(scope="module")
def demo_server() -> Iterator[int]:
    """The demo's server without a screen; its process id."""
    process = subprocess.Popen(
        [*LLMTOP, "demo", "--server-only"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"pid (\d+)", said)
        assert found, said
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def test_attach_to_a_server_by_one_of_its_processes(terminal: TerminalFactory, demo_server: int) -> None:
    child = procfs.below(demo_server)[0]
    screen = terminal([*LLMTOP, "--attach", str(child), "--interval", "0.25"], columns=120, lines=40)
    screen.wait_for("llmtop demo")
    screen.wait_for("EngineCore")
    screen.wait_for(lambda text: re.search(r"run \d+ +wait \d+", text))
    screen.press("q")
    leaves_cleanly(screen)


def test_snapshot_of_a_server_is_strict_json_and_has_exit_code_1_while_its_engine_is_stopped(demo_server: int) -> None:
    [engine] = psutil.Process(demo_server).children()
    engine.suspend()
    stopped = llmtop("snapshot", "--json", "--attach", str(demo_server), "--seconds", "0.5")
    engine.resume()
    goes_on = llmtop("snapshot", "--json", "--attach", str(demo_server), "--seconds", "0.5")
    faulty = json.loads(stopped.stdout)
    assert stopped.returncode == 1
    assert stopped.stderr.startswith("llmtop: ENGINE STOPPED: EngineCore (pid ")
    assert faulty["liveness"]["state"] == "faulty"
    assert not faulty["liveness"]["is_serving"]
    assert [fault["rule"] for fault in faulty["liveness"]["faults"]] == ["process-stopped"]
    assert faulty["findings"][0]["rule"] == "process-stopped"
    assert (goes_on.returncode, goes_on.stderr) == (0, "")
    document = json.loads(goes_on.stdout, parse_constant=lambda name: pytest.fail(f"not strict JSON: {name}"))
    assert document["schema"] == "llmtop.snapshot/1"
    assert document["liveness"] == {"state": "alive", "is_serving": True, "faults": []}
    assert {process["role"] for process in document["target"]["processes"]} >= {"APIServer", "EngineCore"}
    assert document["server"]["running"]["value"] >= 0
    assert all(thread["on_cpu"] >= 0 for thread in document["threads"] if isinstance(thread["on_cpu"], float))
