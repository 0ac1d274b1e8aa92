# Every target sets up what it needs in .venv; a fresh machine needs python3 (>= 3.11), pip and make.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-all lint format bench sim clean

demo: .venv/core  ## the main job: logs, CORSDICE and clones, what they believe and what is true, and a report
	$(BIN)/corsdice demo --out out/demo

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

bench: .venv/core  ## exact solvers against the number of states; training against this machine's matrix products; acting
	$(BIN)/corsdice bench tabular
	$(BIN)/corsdice bench training
	$(BIN)/corsdice bench diffusion

# Their pins (gymnasium 0.28, pygame 2.1, numpy < 1.24) exclude every current Python, and are not needed.
sim: .venv/dev  ## the simulators of DSRL; `corsdice doctor` then says that all 38 tasks run
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet -e '.[sim]'
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet --no-deps safety-gymnasium==1.0.0 bullet-safety-gym==1.4.0
	$(BIN)/corsdice doctor --quick

.venv/core: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "corsdice needs Python 3.11 or newer; set PYTHON=python3.x")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet -e .
	@touch $@

.venv/dev: .venv/core
	PIP_CONSTRAINT=constraints.txt $(PIP) install --quiet -e '.[dev,gym,minari,mujoco,ray,search,sepsis]'
	@touch $@

clean:
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
