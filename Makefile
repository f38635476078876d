# Two commands: `make run` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: run test lint types check figures bench docs clean

run: $(VENV)/.run-ready
	@$(BIN)/dptopk demo

test: $(VENV)/.test-ready
	$(BIN)/python -m pytest -q -n $(JOBS)

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test-ready
	$(BIN)/mypy

check: lint types test

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.run-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@ $(VENV)/.run-ready

figures: $(VENV)/.test-ready
	$(BIN)/dptopk reproduce all --out figures

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
