"""Run the command line: ``python -m llmtop``."""

import sys

from llmtop.cli import main

if __name__ == "__main__":
    sys.exit(main())
