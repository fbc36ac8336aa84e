"""What no linter sees: the links of the layout, and what each command loads."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmtop.parsers.registry import MODULES
from llmtop.tui.panes.live import LIVE_VIEWS
from llmtop.tui.panes.recorded import all_views

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("package", ["tui", "collectors", "parsers"])
def test_package_link_is_the_root_folder(package: str) -> None:
    link = ROOT / "llmtop" / package
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.samefile(ROOT / package)


def modules_loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import llmtop.parsers.registry",
        "import llmtop.session",
        "import llmtop.cli.snapshot, llmtop.cli.snapshot_json, llmtop.collectors.registry",
        "import llmtop.cli.report",
        "import llmtop.cli.record, llmtop.collectors.registry, llmtop.session",
        "import llmtop.cli.doctor",
    ],
)
def test_headless_parts_load_no_screen(statement: str) -> None:
    loaded = modules_loaded_by(statement)
    assert not loaded & {"textual", "rich", "numpy", "pandas", "plotext", "prometheus_client"}


def test_live_screen_loads_no_numpy_and_no_charts() -> None:
    loaded = modules_loaded_by("import llmtop.tui.screens.live")
    assert "textual" in loaded
    assert not loaded & {"numpy", "pandas", "plotext", "prometheus_client"}


RULES = "llmtop.analysis.rules"
OF_LIVE = {f"{RULES}.live_rules", f"{RULES}.thread_signals", "llmtop.analysis.server.liveness"}
OF_REPORTS = {
    f"{RULES}.report_rules",
    "llmtop.analysis.kernels.table",
    "llmtop.analysis.timeline.idle_view",
    "llmtop.analysis.kernels.nvtx_ranges",
    "llmtop.analysis.kernels.communication",
    "llmtop.parsers.registry",
}
"""What a server under observation has none of: kernels, a timeline, ranges, files."""


def test_the_first_frame_waits_for_no_rule_and_nothing_of_reports() -> None:
    loaded = modules_loaded_by("import llmtop.tui.screens.live, llmtop.cli.live")
    assert not loaded & {*OF_REPORTS, f"{RULES}.live_rules", f"{RULES}.thread_signals"}


def test_a_report_of_kernels_is_shown_without_what_timelines_and_servers_need() -> None:
    loaded = modules_loaded_by(
        "import llmtop.tui.screens.explore; from llmtop.tui.panes.recorded import views_of; views_of(None)"
    )
    assert "llmtop.tui.panes.kernels" in loaded
    foreign = {f"llmtop.tui.panes.{name}" for name in ("timeline", "steps", "memory", "threads", "gpu", "diff")}
    assert not loaded & {*foreign, "llmtop.analysis.pages.token_budget", "llmtop.parsers.nsys_capture", "sqlite3"}


def test_a_report_of_kernels_is_shown_without_what_draws_its_memory_chart() -> None:
    loaded = modules_loaded_by(
        "from llmtop.tui.panes.recorded import views_of; from llmtop.model import Origin, Trace; "
        "views_of(Trace(Origin('ncu-rep'), 0, 1))"
    )
    assert "llmtop.tui.panes.memory_chart" in loaded
    assert not loaded & {"llmtop.analysis.kernels.memory_chart", "llmtop.tui.render.memory_chart"}


PARSERS = {f"llmtop.parsers.{name}" for name in MODULES}


def test_a_file_loads_no_parser_of_formats_that_are_asked_after_its_own() -> None:
    """Nor the readers of recordings and archives, of which the mark is enough to tell that it is none."""
    sample = "sample_traces/ncu/2025.3.1/barriers.ncu-rep.xz"
    loaded = modules_loaded_by(
        f"from pathlib import Path; from llmtop.parsers.registry import load, recording_at, reports_within; "
        f"path = Path({sample!r}); reports_within(path), recording_at(path), load(path)"
    )
    assert loaded & PARSERS == {"llmtop.parsers.recording", "llmtop.parsers.ncu_rep"}
    assert not loaded & {"llmtop.recording.reader", "llmtop.parsers.packed_files", "zipfile", "tarfile"}


def test_a_look_at_the_gpus_alone_loads_no_budget_and_no_requests_of_a_server() -> None:
    loaded = modules_loaded_by("import llmtop.cli.snapshot, llmtop.cli.snapshot_json")
    assert "llmtop.analysis.pages.gpus" in loaded
    of_servers = {f"llmtop.analysis.pages.{name}" for name in ("token_budget", "budget_gains", "batch_advice")}
    assert not loaded & {*of_servers, "llmtop.analysis.server.requests"}


def test_nothing_that_asks_the_driver_is_loaded_beside_the_screen() -> None:
    """NVML is asked in a process of its own, which loads what that takes while the screen is loaded here."""
    loaded = modules_loaded_by("from llmtop.collectors.registry import host_collectors; host_collectors()")
    assert "llmtop.collectors.gpus" in loaded
    assert not loaded & {"pynvml", "llmtop.collectors.nvml.collector", "llmtop.collectors.nvml.gpm"}


@pytest.mark.parametrize(
    ("trace", "needed", "foreign"),
    [
        ("Trace(Origin('live'), 0, 1)", OF_LIVE, OF_REPORTS),
        ("Trace(Origin('ncu'), 0, 1)", {f"{RULES}.kernel_waits"}, OF_LIVE),
    ],
    ids=["live", "report"],
)
def test_a_diagnosis_loads_the_rules_of_its_kind_of_trace_alone(
    trace: str, needed: set[str], foreign: set[str]
) -> None:
    diagnosed = f"from {RULES}.registry import diagnose; from llmtop.model import Origin, Trace; diagnose({trace})"
    loaded = modules_loaded_by(diagnosed)
    assert loaded >= needed
    assert not loaded & foreign


ANALYSIS = ROOT / "llmtop" / "analysis"
MOST_ARROWS = 29
"""Between the subjects of analysis, types and imports within functions included. What all of them are told in (`views`,
`tables`) is no subject. A new one is a question: does what is imported stand in the folder of its subject?
Kernels ask the timeline in which ranges they were launched: one rule, which steps and spans ask too."""


def arrows(folder: Path) -> Iterator[tuple[str, str]]:
    """Which sub-package of a folder imports which other one."""
    package = ".".join(folder.relative_to(ROOT).parts)
    subjects = {one.parent.name for one in folder.glob("*/__init__.py")}
    for path in folder.glob("*/**/*.py"):
        own = path.relative_to(folder).parts[0]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(f"{package}."):
                below = node.module.removeprefix(package).lstrip(".").split(".")[0]
                for subject in [below] if below else [alias.name for alias in node.names]:
                    if subject in subjects and subject != own:
                        yield own, subject


def test_subjects_of_analysis_know_few_others() -> None:
    found = sorted(set(arrows(ANALYSIS)))
    assert ("rules", "kernels") in found
    assert len(found) <= MOST_ARROWS, "\n".join(" -> ".join(arrow) for arrow in found)


KINDS = {*all_views(), *(live.kind for live in LIVE_VIEWS)}


def names_imported_by(path: Path) -> set[str]:
    """All that a module imports by name, for types too."""
    imports = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom))
    return {alias.name for node in imports for alias in node.names}


def test_the_screens_of_views_know_none_of_them_by_name() -> None:
    """They are made of the registries, and asked by the messages of `tui/panes/view.py`."""
    views = {one.__name__ for one in KINDS}
    assert "StacksPane" in names_imported_by(ROOT / "tests/tui/test_stall_flame.py") & views
    for name in ("live_screen.py", "live_panes.py", "live_layout.py", "explore_screen.py"):
        assert names_imported_by(ROOT / "tui/screens" / name) & views == set(), name


def test_no_view_knows_another() -> None:
    """A view is one file: taking it away, or adding one, changes no other."""
    modules = {
        one.__module__: names_imported_by(ROOT / f"{one.__module__.removeprefix('llmtop.').replace('.', '/')}.py")
        for one in KINDS
    }
    assert len(modules) == len(KINDS)
    classes = {one.__name__ for one in KINDS}
    assert {module: names & classes for module, names in modules.items() if names & classes} == {}


def test_no_source_says_where_it_was_made() -> None:
    if shutil.which("git") is None:
        pytest.skip("needs git to list the tracked files")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout: nothing lists the tracked files")
    texts = [p for p in map(Path, tracked.stdout.split("\0")) if p.suffix in {".py", ".md", ".toml", ".c", ".txt"}]
    bad = re.compile(r"(?<![\w}])/(work|root)/|/tmp/task" + "s")  # but /proc/PID/root/ is a process's own root
    assert not [str(path) for path in texts if bad.search((ROOT / path).read_text())]


def test_what_runs_as_root_needs_nothing_of_llmtop() -> None:
    """The probes' helper has the standard library alone: there its package is called `tracing`."""
    folder = ROOT / "collectors" / "tracing"
    parts = [*(folder / "helper").glob("*.py"), *(folder / "probes" / "helper").glob("*.py")]
    names = [".".join(("tracing", *part.relative_to(folder).with_suffix("").parts)) for part in parts]
    assert {"tracing.helper.system", "tracing.probes.helper.scheduler"} <= set(names)
    code = (
        "import sys, types; from importlib import import_module; tracing = types.ModuleType('tracing'); "
        "sys.modules['tracing'] = tracing; tracing.__path__ = [sys.argv.pop(1)]\n"
        "for name in sys.argv[1:]: import_module(name)\n"
        "print('\\n'.join(sys.modules))"
    )
    isolated = [sys.executable, "-I", "-S", "-c", code, str(folder), *names]
    loaded = set(subprocess.run(isolated, capture_output=True, text=True, check=True).stdout.split())
    assert loaded >= {*names, "tracing.wire"}
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"tracing", "__main__"}


STARTS = {"subprocess.Popen", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output"}
STARTS |= {"os.system", "os.popen", "os.posix_spawn", "os.posix_spawnp", "os.startfile", "pty.spawn", "shutil.which"}
MAY_START = re.compile(r"subprocess|multiprocessing|concurrent|spawn|os\.(exec|system|popen)|\bpty\b|shutil")
START_ELSEWHERE = {
    "llmtop/programs.py": "the place where programs are started",
    "llmtop/remedies.py": "looks programs up to name them in advice, and starts none",
    "llmtop/servers/supervise.py": "the user's own command, where the user stands; imports nothing of llmtop",
    "collectors/tracing/helper/child.py": "runs under the system's Python, without llmtop; gets absolute paths",
    "tui/guardian.py": "posix_spawn of its own file by -I -S: it must cost a start nothing",
}


def test_programs_are_started_in_one_place() -> None:
    """By `llmtop.programs`: elsewhere the current folder would be searched for programs and modules."""
    found = {
        str(path.relative_to(ROOT))
        for folder in ("llmtop", "collectors", "parsers", "tui")
        for path in (ROOT / folder).rglob("*.py")
        if MAY_START.search(text := path.read_text(encoding="utf-8"))
        and any(_starts(node) for node in ast.walk(ast.parse(text)))
    }
    assert found == START_ELSEWHERE.keys()


def _starts(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(f"{node.module}.{one.name}" in STARTS or node.module == "multiprocessing" for one in node.names)
    if isinstance(node, ast.Import):
        return any(one.name.partition(".")[0] in ("multiprocessing", "pty", "concurrent") for one in node.names)
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called in STARTS or called.startswith(("os.exec", "os.spawn", "asyncio.create_subprocess"))
