# `make demo` runs the main job, `make test` passes the tests; both make their own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))

.PHONY: help demo test test-textual check fuzz format packages snapshots clean

help:  ## what there is to make
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.run  ## start the embedded LLM server with load and watch it
	@$(BIN)/llmtop demo

test: packages $(VENV)/.dev  ## run the tests, after installing what they need
	@$(BIN)/python scripts/run-tests -q -n $(WORKERS) --dist loadfile

test-oracles: packages $(VENV)/.oracles  ## run the tests that compare with large readers (pyarrow, Perfetto's trace processor)
	@$(BIN)/python scripts/run-tests -q -n $(WORKERS) --dist loadfile -m oracle

test-textual: packages $(VENV)/.dev  ## run the screen's tests on the oldest and newest Textual allowed, or VERSION=8.2.6
	@scripts/test-textual $(VERSION)

check: $(VENV)/.dev  ## lint, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fuzz: packages $(VENV)/.dev  ## run the property tests with other examples, and many more, than the tests draw
	$(BIN)/python -m pytest -q -n $(WORKERS) -m hypothesis --hypothesis-profile fuzz

format: $(VENV)/.dev  ## rewrite the sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

snapshots: $(VENV)/.dev  ## draw the reference screenshots of the tests anew
	$(BIN)/python -m pytest -q tests/tui --snapshot-update

manual: $(VENV)/.run  ## make docs/llmtop.1 of the command line and docs/formats.md of the parsers
	$(BIN)/python -m llmtop.cli.manual > docs/llmtop.1
	$(BIN)/python -m llmtop.cli.formats > docs/formats.md

packages:  ## install the system packages that tests use (apt-packages.txt)
	@scripts/system-packages

clean:  ## remove what make made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

PIP := $(BIN)/python -m pip install -q --disable-pip-version-check

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "llmtop needs Python 3.11 or newer; try: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/system-packages python3-venv
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment; ask an administrator for: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.run: $(VENV)/.base pyproject.toml
	@echo "Installing llmtop and what it needs into $(VENV) (about 150 MB)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Installing the test tools into $(VENV) (about 250 MB)"
	@$(PIP) --group dev
	@touch $@

$(VENV)/.oracles: $(VENV)/.dev
	@scripts/system-packages nodejs
	@echo "Installing the readers that results are compared with into $(VENV) (about 250 MB)"
	@$(PIP) --group oracles
	@touch $@
