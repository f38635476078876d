# Two commands: `make run` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
LATEX := pdflatex -interaction=nonstopmode -halt-on-error

.PHONY: run coverage test browser service-torture deploy-check lint types check figures bench utility merit setwise-table census audits bench-all whole-answers docs docs-check paper paper-numbers package-check clean continual

run: $(VENV)/.run-ready
	@$(BIN)/dptopk demo

# A file is one worker's: its servers, its Spark and what it remembers are made once.
test: $(VENV)/.test-ready
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

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

# The page in a real browser: Debian's Chromium is installed where it is missing (as root).
browser: $(VENV)/.test-ready
	command -v chromium >/dev/null || (apt-get update -q && apt-get install -y -q chromium)
	$(BIN)/python -m pytest -q tests/service/test_page.py

# The service under many kills, on SQLite and on PostgreSQL, and under many generated requests; some minutes.
service-torture: $(VENV)/.test-ready
	DPTOPK_KILLS=40 $(BIN)/python -m pytest -q -s tests/service/test_exactly_once.py tests/service/test_postgresql.py -k kills
	DPTOPK_EXAMPLES=50 $(BIN)/python -m pytest -q tests/service/test_schema.py

# The recipes of docs/deploy.md with nginx and systemd-analyze, on Debian: apt-get install nginx-light openssl
deploy-check: $(VENV)/.test-ready
	$(BIN)/python scripts/deploy_check.py

figures: $(VENV)/.test-ready
	$(BIN)/dptopk reproduce all --out figures

# Side by side with other libraries: writes docs/benchmarks.md, and docs/whole-answers.md with all its cells.
bench: $(VENV)/.bench-ready whole-answers
	$(BIN)/python benchmarks/peers.py

# Every design of the planner on six shapes of data: writes docs/utility-table.md; a quarter of an hour.
utility: $(VENV)/.test-ready
	$(BIN)/python benchmarks/utility.py

# Whether another design has a smaller merit than the one that is planned: two hundred cells, some minutes.
merit: $(VENV)/.test-ready
	$(BIN)/python benchmarks/merit.py

# Audits of mechanisms known to be broken, and of ours: writes docs/audit-results.md.
audits: $(VENV)/.bench-ready
	$(BIN)/python benchmarks/audits.py

# Whole answers beside the published mechanisms: writes docs/whole-answers.md; some minutes.
whole-answers: $(VENV)/.test-ready
	$(BIN)/python benchmarks/whole_answers.py

# The widths of the set-wise brackets beside the baselines, into docs/setwise.md; some minutes.
setwise-table: $(VENV)/.test-ready
	$(BIN)/python benchmarks/bench_setwise.py --write

# Whether time limits are kept, at 0.05 to 2 s: writes the table of docs/limits.md; half an hour.
# The 2020 Census redistricting data, composed exactly: writes docs/census.md.
census: $(VENV)/.test-ready
	$(BIN)/python benchmarks/census.py

# Everything that is measured; takes long.
bench-all: bench
	set -e; for script in benchmarks/bench_*.py; do $(BIN)/python $$script; done

# A top k every day against answers anew: writes the tables of docs/continual.md; some minutes.
continual: $(VENV)/.test-ready
	$(BIN)/python benchmarks/continual.py

# Coverage of error bars: writes the tables of docs/intervals.md; some minutes. BASKETS=groceries.csv adds real baskets.
coverage: $(VENV)/.bench-ready
	$(BIN)/python benchmarks/coverage.py $(if $(BASKETS),--baskets $(BASKETS))

docs: $(VENV)/.docs-ready
	$(BIN)/mkdocs build --strict

# Every page of the site in Chromium: each formula is set, none is left as text, no other host is asked.
docs-check: docs $(VENV)/.test-ready
	command -v chromium >/dev/null || (apt-get update -q && apt-get install -y -q chromium)
	$(BIN)/python scripts/docs_in_browser.py site

# build/paper/paper.pdf. Needs TeX, on Debian: apt-get install --no-install-recommends texlive-latex-recommended
# texlive-fonts-recommended texlive-pictures lmodern
paper: export TEXINPUTS = ../../docs/paper:
paper: export BIBINPUTS = ../../docs:
paper:
	mkdir -p build/paper
	cd build/paper && $(LATEX) paper.tex && bibtex paper && $(LATEX) paper.tex && $(LATEX) paper.tex

# All numbers of the paper against what the package computes; the quick ones are part of `make test`.
paper-numbers: $(VENV)/.bench-ready
	$(BIN)/python scripts/paper_numbers.py

# Build, look into the archives, install the wheel into a clean environment, run it.
package-check: $(VENV)/.test-ready
	rm -rf dist build/clean
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet dist/*.whl
	cd build/clean && bin/dptopk demo --seed 1 && bin/dptopk compose "25*BR(0.1)" --delta 1e-6

$(VENV)/.bench-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test,bench]'
	@touch $@

$(VENV)/.docs-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
