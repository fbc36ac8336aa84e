"""Reports that only nsys can read: by the export beside them, by a real nsys, and by some that misbehave."""

from __future__ import annotations

import os
import shutil
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmtop.errors import FileError
from llmtop.model import Trace
from llmtop.parsers import nsys_report
from llmtop.parsers.progress import CURRENT, ReadingProgress
from llmtop.parsers.registry import load
from tests.nsys_capture import Capture
from tests.nvidia_tools import tools
from tests.parsers.told_progress import told_while_read

NEWEST = b"NVIDIA Tegra Profiler Report 2025@5@2@266-255236693005v0\n\x0bLocal (CLI)"
OLD = b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)"
REAL = Path(__file__).parents[3] / "shared/samples/public/NCAR__GPU_workshop__MW_baseline.nsys-rep"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and no nsys anywhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(nsys_report, "_PLACES", ())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path / "cache" / "llmtop" / "nsys"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "run 1.nsys-rep"
    path.write_bytes(NEWEST)
    return path


@pytest.fixture
def export(tmp_path: Path) -> Path:
    capture = Capture()
    capture.kernel(30, 40, capture.call("cudaLaunchKernel", 10, 20))
    return capture.write(tmp_path / "made.sqlite")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    return Installer(tmp_path / "bin", monkeypatch)


class Installer:
    """Puts programs called nsys on the PATH; `$out` is the file that they are to write."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        patch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        folder.mkdir()

    def __call__(self, script: str, version: str = "2026.1.3.10-261", name: str = "nsys") -> Path:
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\nif [ "$1" = --version ]; then echo "NVIDIA Nsight Systems version {version}v0"; exit; fi\n'
            f'out="$7"; echo $$ > "{self.folder}/pid"; echo "$@" >> "{self.folder}/calls"\n{script}\n'
        )
        path.chmod(0o755)
        return path

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def is_running(self) -> bool:
        return Path("/proc", (self.folder / "pid").read_text().strip()).exists()


def kernels(trace: Trace) -> int:
    return 0 if trace.kernels is None else len(trace.kernels)


def refusal(report: Path) -> str:
    with pytest.raises(FileError) as caught:
        load(report)
    assert str(report) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in report.parent.iterdir()] == [report.name], "nothing is written beside it"
    return str(caught.value)


@pytest.mark.parametrize("suffix", [".nsys-rep", ".qdrep"])
def test_the_export_beside_a_report_is_read(report: Path, export: Path, suffix: str) -> None:
    report = report.rename(report.with_suffix(suffix))
    beside = report.with_suffix(".sqlite")
    shutil.copy(export, beside)
    trace = load(report)
    assert kernels(trace) == 1
    assert trace.origin.path == str(report)
    assert trace.origin.facts["export"] == str(beside)


def test_an_export_that_is_older_than_its_report_is_not_of_it(report: Path, export: Path) -> None:
    beside = report.with_suffix(".sqlite")
    shutil.copy(export, beside)
    os.utime(beside, (1, 1))
    with pytest.raises(FileError, match="which only nsys can read"):
        load(report)


def test_a_report_is_exported_once_into_the_cache(report: Path, export: Path, install: Installer, cache: Path) -> None:
    install(f'printf "Processing: [42%%]\\r"; cp "{export}" "$out"')
    assert kernels(load(report)) == 1
    moved = report.rename(report.with_name("elsewhere.nsys-rep"))
    assert kernels(load(moved)) == 1
    assert len(install.calls) == 1, "a report is known by its content"
    assert install.calls[0].startswith("export --type sqlite --force-overwrite true --output ")
    assert install.calls[0].endswith(str(report))
    (kept,) = cache.iterdir()
    assert load(moved).origin.facts["export"] == str(kept)
    assert [path.name for path in report.parent.iterdir()] == [moved.name]


def test_an_export_beside_it_that_is_damaged_is_made_anew(report: Path, export: Path, install: Installer) -> None:
    report.with_suffix(".sqlite").write_bytes(b"SQLite format 3\0 and no more")
    install(f'cp "{export}" "$out"')
    assert kernels(load(report)) == 1


def test_the_newest_nsys_of_several_is_taken(
    report: Path, export: Path, install: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("exit 9", version="2024.9.1.1")
    newer = install(f'cp "{export}" "$out"', version="2025.10.1.1", name="other-nsys")
    monkeypatch.setattr(nsys_report, "_PLACES", (str(newer).lstrip("/"),))
    assert kernels(load(report)) == 1


@pytest.mark.parametrize(("version", "is_enough"), [("2025.5.1.1", False), ("2025.5.2", True), ("2025.5.2.300", True)])
def test_an_nsys_that_is_too_old_is_not_asked(
    report: Path, export: Path, install: Installer, version: str, is_enough: bool
) -> None:
    install(f'cp "{export}" "$out"', version=version)
    if is_enough:
        assert kernels(load(report)) == 1
        return
    said = refusal(report)
    assert "nsys 2025.5.2 or a newer one, and the newest here is 2025.5.1.1" in said
    assert "`nsys export --type sqlite 'run 1.nsys-rep'`" in said
    assert not (install.folder / "calls").exists()


def test_without_an_nsys_it_is_said_which_is_needed(report: Path) -> None:
    assert "nsys 2025.5.2 or a newer one, and nsys is not installed" in refusal(report)
    report.write_bytes(OLD)
    assert "it takes the nsys that wrote it (2023.3 at most) or a newer one, and nsys is not installed" in refusal(
        report
    )


def test_what_is_no_nsys_is_none(report: Path, install: Installer) -> None:
    install("exit 0").write_text("#!/bin/sh\nexit 3\n")
    assert "nsys is not installed" in refusal(report)
    install("exit 0").write_text("no program")
    assert "nsys is not installed" in refusal(report)


def test_why_an_nsys_fails_is_said(report: Path, install: Installer, cache: Path) -> None:
    install('echo "half" > "$out"; printf "Processing [1%%]\\r"; echo "Report was \033[2Jcut" >&2; exit 1')
    said = refusal(report)
    assert ": Report was ␛[2Jcut; run" in said
    assert "cannot be exported by" in said
    assert list(cache.iterdir()) == []


def test_an_nsys_that_writes_nothing_before_it_fails_is_told_alike(
    report: Path, install: Installer, cache: Path
) -> None:
    install('echo "no licence" >&2; exit 1')
    assert "cannot be exported by" in (said := refusal(report))
    assert ": no licence; run" in said
    assert cache.stat().st_mode & 0o777 == 0o700, "nobody else reads what reports hold"


def test_an_export_that_is_garbage_is_not_kept(report: Path, install: Installer, cache: Path) -> None:
    install('head -c 100000 /dev/urandom; head -c 5000 /dev/urandom > "$out"')
    assert "nsys has made an export of it that cannot be read" in refusal(report)
    assert list(cache.iterdir()) == []


def test_an_nsys_that_hangs_is_ended(report: Path, install: Installer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_report, "SILENT_S", 0.3)
    install("exec sleep 1000")
    assert "nsys has said and written nothing for 0 s" in refusal(report)
    assert not install.is_running()


def test_an_nsys_that_fills_the_disk_is_ended(
    report: Path, install: Installer, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(nsys_report, "LARGEST", 1 << 20)
    install('exec cat /dev/zero > "$out"')
    assert "it grew beyond 1.00 MiB" in refusal(report)
    assert not install.is_running()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("more", [0, -1], ids=["as much", "less"])
def test_256_mib_of_the_disk_are_left_to_others(
    report: Path, export: Path, install: Installer, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=(256 << 20) + more))
    install(f'cp "{export}" "$out"; echo done')
    if more:
        assert "has no room left; set XDG_CACHE_HOME" in refusal(report)
    else:
        assert kernels(load(report)) == 1


def test_how_far_nsys_is_is_told_and_nothing_when_it_is_done(report: Path, export: Path, install: Installer) -> None:
    install(f'printf "Processing [42%%]\\r"; cp "{export}" "$out"')
    first, *told, last = told_while_read(report)
    assert told[0].startswith("nsys exports it, 42 %, ")
    assert all(text.endswith(" so far: Esc stops it") for text in told)
    assert (first, last) == ("", "")


def test_a_disk_without_room_is_said(report: Path, install: Installer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_report, "_SPARE", 1 << 62)
    install("exec sleep 1000")
    assert "has no room left; set XDG_CACHE_HOME" in refusal(report)
    assert not install.is_running()


def test_a_cache_that_cannot_be_written_is_said(
    report: Path, install: Installer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    install("exit 0")
    assert "Not a directory; set XDG_CACHE_HOME" in refusal(report)


def test_nobody_waits_any_more(report: Path, install: Installer) -> None:
    install("exec sleep 1000")
    progress = ReadingProgress()
    progress.stop()

    def stopped() -> str:
        CURRENT.set(progress)
        return refusal(report)

    assert "the export by nsys was stopped" in copy_context().run(stopped)
    assert not install.is_running()


def test_the_oldest_exports_make_room(
    report: Path, export: Path, install: Installer, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = export.stat().st_size
    monkeypatch.setattr(nsys_report, "LARGEST", 3 * size)
    cache.mkdir(parents=True)
    for age, name in enumerate(("old", "older", "oldest")):
        shutil.copy(export, cache / f"{name}.sqlite")
        os.utime(cache / f"{name}.sqlite", (1000 - age, 1000 - age))
    there = install.folder / "there"
    install(f'ls "{cache}" > "{there}"; cp "{export}" "$out"')
    assert kernels(load(report)) == 1
    assert there.read_text().split() == ["old.sqlite", "older.sqlite"], "there is room before nsys needs it"
    assert {"old.sqlite", "older.sqlite"} < {path.name for path in cache.iterdir()}
    assert not (cache / "oldest.sqlite").exists()


def test_a_real_nsys_exports_a_real_report(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    found = tools("nsys")
    if not found or not REAL.exists():
        pytest.skip("needs Nsight Systems' command line, by LLMTOP_NSIGHT, and a report of others that is not shipped")
    monkeypatch.setattr(nsys_report, "_PLACES", tuple(str(program).lstrip("/") for program in found))
    trace = load(REAL)
    assert kernels(trace) == 4162
    assert len(list(cache.iterdir())) == 1
