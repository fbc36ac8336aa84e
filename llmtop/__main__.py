"""Run the command line: ``python -m llmtop``."""

import sys
from pathlib import Path

if not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).resolve().parents[1]:
    del sys.path[0]  # the current folder, which may be anybody's: nothing more is imported from it

from llmtop.cli import main

if __name__ == "__main__":
    sys.exit(main())
