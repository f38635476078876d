# Two commands: `make run` and `make test`. Both set up what they need in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
LATEX := pdflatex -interaction=nonstopmode -halt-on-error

.PHONY: run test test-slow test-studies test-all lowest lowest-ready dbt dbt-ready lint types check browser service-torture deploy-check figures figures-quick caps-quick doc-figures proofs measure bench docs docs-check \
  contrib-check paper paper-numbers package-check clean

run: $(VENV)/.run-ready
	@$(BIN)/dptopk demo

# A file is one worker's: its servers, its Spark and what it remembers are made once.
PYTEST = $(BIN)/python -m pytest -q -n $(1) --dist loadfile

# The quick tests, and all contracts; about two minutes.
test: $(VENV)/.test-ready
	$(call PYTEST,$(JOBS)) -m "not slow"

# What is marked `slow`, as `.ci/run` runs it. Many of these tests wait for other processes, so one worker more than
# there are cores keeps the cores busy; the longest files are begun first (tests/conftest.py).
SLOW_JOBS := $(shell expr $(JOBS) + 1)
test-slow: $(VENV)/.test-ready
	$(call PYTEST,$(SLOW_JOBS)) --no-loadscope-reorder -m "slow and not study"

# What is marked `study`: the same claims on more or larger cases; before a release.
test-studies: $(VENV)/.test-ready
	$(call PYTEST,$(SLOW_JOBS)) -m study

# Every test.
test-all: test test-slow test-studies

# The quick tests of what users call, at the lowest versions that pyproject.toml promises; LOWEST: which.
# (test_schema.py needs schemathesis, which asks for newer versions.)
LOWEST = tests/cli tests/session tests/histogram tests/release tests/datasets tests/service
LOWEST_BIN := build/lowest/bin
lowest: build/lowest/.ready
	$(LOWEST_BIN)/python -m pytest -q -n $(JOBS) --dist loadfile -p no:cacheprovider -m "not slow" \
	  -W ignore::DeprecationWarning --ignore tests/service/test_schema.py $(LOWEST)

lowest-ready: build/lowest/.ready
build/lowest/.ready: pyproject.toml | $(BIN)/uv
	rm -rf build/lowest
	$(PYTHON) -m venv --without-pip build/lowest
	$(BIN)/uv pip install --quiet --python $(LOWEST_BIN)/python --resolution lowest-direct \
	  --only-binary :all: --editable '.[data,plots,serve]'
	$(BIN)/uv pip install --quiet --python $(LOWEST_BIN)/python \
	  httpx hypothesis mpmath psutil pytest pytest-timeout pytest-xdist
	@touch $@

# The dbt project of examples/, with dbt in an environment of its own.
dbt: $(VENV)/.test-ready build/dbt/.ready
	$(BIN)/python -m pytest -q -n 0 tests/test_dbt.py

dbt-ready: build/dbt/.ready
build/dbt/.ready: pyproject.toml | $(BIN)/uv
	rm -rf build/dbt
	$(PYTHON) -m venv build/dbt
	$(call INSTALL,build/dbt/bin/python,.[dbt])
	@touch $@

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/density.py

types: $(VENV)/.test-ready
	$(BIN)/mypy

check: lint types test

# Installs the project with these extras. uv takes a third of pip's time; where it can not, as with an index that only
# pip's settings name, pip does it.
INSTALL = $(BIN)/uv pip install --quiet --python $(1) --editable '$(2)' || $(1) -m pip install --quiet --editable '$(2)'

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip uv

$(VENV)/.run-ready: pyproject.toml | $(BIN)/uv
	$(call INSTALL,$(BIN)/python,.)
	@touch $@

$(VENV)/.test-ready: pyproject.toml | $(BIN)/uv
	$(call INSTALL,$(BIN)/python,.[test])
	@touch $@ $(VENV)/.run-ready

# The page in a real browser: Debian's Chromium is installed where it is missing (as root).
browser: $(VENV)/.test-ready
	command -v chromium >/dev/null || (apt-get update -q && apt-get install -y -q chromium)
	$(BIN)/python -m pytest -q tests/service/test_page.py

# The service under many kills, on SQLite and on PostgreSQL, and under many generated requests; some minutes.
service-torture: $(VENV)/.test-ready
	DPTOPK_KILLS=40 $(BIN)/python -m pytest -q -s tests/service/test_exactly_once.py tests/service/test_postgresql.py -k kills
	DPTOPK_EXAMPLES=50 $(BIN)/python -m pytest -q tests/service/test_schema.py
	DPTOPK_REQUESTS=10000 $(BIN)/python -m pytest -q --timeout 7200 tests/service/test_roles.py
	DPTOPK_EXTREMES=1 $(BIN)/python -m pytest -q tests/service/test_settings.py

# The recipes of docs/deploy.md with nginx and systemd-analyze, on Debian: apt-get install nginx-light openssl
deploy-check: $(VENV)/.test-ready
	$(BIN)/python scripts/deploy_check.py

figures: $(VENV)/.test-ready
	$(BIN)/dptopk reproduce all --out figures

# The pictures of the docs, from what `make figures` made.
doc-figures: $(VENV)/.test-ready
	$(BIN)/python scripts/doc_figures.py figures

# Every figure with few points, in two processes: that each is made, not its numbers.
figures-quick: $(VENV)/.test-ready
	$(BIN)/dptopk reproduce all --quick --force --jobs 2 --out build/figures-quick

# What a cap on a user's labels costs, on one real table.
caps-quick: $(VENV)/.test-ready
	$(BIN)/python benchmarks/caps.py --quick

# The theorems of proofs/ in Coq 8.16 of Debian 12, which is installed where it is missing (as root).
COQ = coq libcoq-mathcomp-ssreflect libcoq-mathcomp-algebra libcoq-mathcomp-algebra-tactics \
  libcoq-mathcomp-zify libcoq-mathcomp-analysis
proofs:
	@command -v coqc >/dev/null || [ "$$(id -u)" != 0 ] || (apt-get update -q && \
	  apt-get install -y -q --no-install-recommends $(COQ))
	$(PYTHON) scripts/check_proofs.py

# The patches of contrib/ on the packages that PyPI has, with those packages' tests; some minutes. ARGS: --quick.
contrib-check:
	$(PYTHON) scripts/contrib_check.py $(ARGS)

# What is measured, by a script of benchmarks/; most write their page of docs/ and take minutes. Its options: ARGS.
SCRIPT = $(firstword $(wildcard benchmarks/$(WHAT).py benchmarks/bench_$(WHAT).py))
SCRIPTS = $(basename $(notdir $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py))))
measure: $(if $(SCRIPT),$(VENV)/.bench-ready)
	@$(if $(SCRIPT),,echo "make measure WHAT=..., one of: $(sort $(SCRIPTS:bench_%=%))"; exit 2)
	$(BIN)/python $(SCRIPT) $(ARGS)

# Side by side with other libraries: writes docs/notes/whole-answers.md, and docs/notes/benchmarks.md.
bench:
	$(MAKE) measure WHAT=whole_answers ARGS=
	$(MAKE) measure WHAT=peers ARGS=
	$(MAKE) measure WHAT=field ARGS=

docs: $(VENV)/.docs-ready
	$(BIN)/mkdocs build --strict

# Every page of the site in Chromium: each formula is set, none is left as text, no other host is asked.
docs-check: docs $(VENV)/.test-ready
	command -v chromium >/dev/null || (apt-get update -q && apt-get install -y -q chromium)
	$(BIN)/python scripts/docs_in_browser.py site

# build/paper/accounting.pdf and domains.pdf. Needs TeX, on Debian: apt-get install --no-install-recommends texlive-latex-recommended
# texlive-fonts-recommended texlive-pictures lmodern
paper: export TEXINPUTS = ../../docs/paper:
paper: export BIBINPUTS = ../../docs:../../docs/paper:
paper:
	mkdir -p build/paper
	cd build/paper && for paper in accounting domains; do \
	  $(LATEX) $$paper && bibtex $$paper && $(LATEX) $$paper && $(LATEX) $$paper || exit 1; done

# All numbers of the papers against what the package computes; the quick ones are part of `make test-all`.
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

$(VENV)/.bench-ready: $(VENV)/.test-ready
	$(call INSTALL,$(BIN)/python,.[bench])
	@touch $@

$(VENV)/.docs-ready: pyproject.toml | $(BIN)/uv
	$(call INSTALL,$(BIN)/python,.[docs])
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
