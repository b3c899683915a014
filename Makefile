# Each target makes the virtual environment first, so a fresh machine with Python and make needs nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What running needs, and beside it what tests and linters need.
INSTALLED := $(VENV)/installed
READY := $(VENV)/ready

unexport PYTHONDONTWRITEBYTECODE  # bytecode is compiled once, not at every start

.PHONY: demo test check test-llm lint format soak golden bench clean

demo: $(INSTALLED)
	$(BIN)/python examples/idea_validation.py

test: lint
	$(BIN)/python -m pytest -n auto -q

check: lint  # for daily work: all but the tests listed in tests/slow_tests.txt
	$(BIN)/python -m pytest -n auto -q -m 'not slow and not llm'

test-llm: $(READY)  # OPENAI_BASE_URL names the server to ask, OPENAI_API_KEY its key
	$(BIN)/python -m pytest -q -m llm

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(READY)
	HAYTHAM_SOAK=1 $(BIN)/python -m pytest -n auto -q --timeout 3600 -m soak

golden: $(READY)  # draws the golden files anew: what changed is a difference to review
	cd tests && ../$(BIN)/python -m support.make_golden && ../$(BIN)/python -m support.make_effects && ../$(BIN)/python -m support.make_screens

bench: $(READY)
	$(BIN)/python tests/bench.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Haytham needs Python 3.11 or newer: set PYTHON=")'
	@echo "setting up $(VENV), once: a virtual environment, then Haytham and the packages that it needs"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable .
	@touch $@

$(READY): $(INSTALLED)
	@echo "setting up $(VENV), once: packages for tests and linters; this takes a minute"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[dev]'
	@touch $@
