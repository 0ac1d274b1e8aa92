# Every target sets up what it needs in .venv; a fresh machine needs python3 (>= 3.11), pip and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-all lint format bench clean

demo: .venv/core  ## the main job, small: Figure 1 of the paper on 30 random MDPs
	$(BIN)/corsdice reproduce random-mdp --runs 30 --out out/demo

test: .venv/dev  ## the default suite
	$(BIN)/pytest -n 2

test-all: .venv/dev  ## adds the tests marked slow
	$(BIN)/pytest -n 2 -m "slow or not slow"

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/core  ## time and memory against the number of states
	$(BIN)/corsdice bench tabular

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "corsdice needs Python 3.11 or newer; set PYTHON=python3.x")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet -e .
	@touch $@

.venv/dev: .venv/core
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet -e '.[dev,gym,minari,sepsis]'
	@touch $@

clean:
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
