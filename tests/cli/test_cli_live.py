"""What the live command makes of its arguments."""

from __future__ import annotations

import argparse
import os

import pytest

from llmtop.cli import live
from llmtop.cli.run import run


def test_told_dtype_counts_for_more_than_what_was_found() -> None:
    target = live.find(os.getpid())
    told = live.told_dtype(target, live.dtype("FP8_E4M3"))
    assert told is not None
    assert (told.dtype, told.pid) == ("fp8", target.pid)
    assert live.told_dtype(target, None) is target


@pytest.mark.parametrize("text", ["int3", "auto", ""])
def test_dtype_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="bf16"):
        live.dtype(text)


@pytest.mark.parametrize("text", ["0", "-1", "1e99", "nan", "soon", "0.01"])
def test_interval_that_cannot_be_kept_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        live.interval(text)


def test_fault_of_its_own_is_one_line_unless_debugging(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: argparse.Namespace) -> int:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("llmtop.cli.doctor.run", fail)
    assert run(["doctor"]) == 1
    said = capsys.readouterr().err
    assert said == "llmtop: a fault of its own: ZeroDivisionError: two lines; LLMTOP_DEBUG=1 shows where\n"
    monkeypatch.setenv("LLMTOP_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["doctor"])


def test_interrupt_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmtop.cli.doctor.run", interrupt)
    assert run(["doctor"]) == 130


def test_probes_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMTOP_NO_EBPF", raising=False)
    parser = argparse.ArgumentParser()
    live.add_arguments(parser)
    parser.parse_args([])
    assert "LLMTOP_NO_EBPF" not in os.environ
    parser.parse_args(["--no-ebpf"])
    assert os.environ["LLMTOP_NO_EBPF"] == "1"
