"""The manual page: as the command line is, and as man(7) wants it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from llmtop.cli.grammar import commands
from llmtop.cli.manual import manual

PAGE = Path(__file__).resolve().parents[2] / "docs" / "llmtop.1"


def test_the_page_is_as_the_command_line_is() -> None:
    assert PAGE.read_text() == "".join(f"{line}\n" for line in manual()), "make manual, and look at what changed"


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_it_is_a_page_without_a_fault_that_names_every_option() -> None:
    drawn = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", str(PAGE)], capture_output=True, text=True, check=True
    )
    assert drawn.stderr == ""
    flags = {flag for command in commands() for option in command.options for flag in option.flags}
    assert [flag for flag in flags if flag not in drawn.stdout] == []
    assert "--incident NAME" in drawn.stdout
