# One command for set-up, one for tests. Everything else is a shortcut for something documented.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed

# Tests start hundreds of Python processes: where the environment forbids bytecode, each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

ORACLE := .venv-rliable
ORACLE_STAMP := $(ORACLE)/.installed
SKY := .venv-sky
SKY_STAMP := $(SKY)/.installed

CRATE := .venv-crate
CRATE_STAMP := $(CRATE)/.installed

SITE := .venv-site
SITE_STAMP := $(SITE)/.installed

.PHONY: setup demo test test-fast test-launchers test-others coverage fuzz lint evidence benchmarks benchmarks-smoke golden sky docs howto pictures site dist clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tools/install_torch.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/install_torch.py
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# rliable needs older packages than ours, so it has an environment of its own. Tests need only what it once said.
$(ORACLE_STAMP): benchmarks/oracle/constraints.txt
	test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip --disable-pip-version-check install --quiet --constraint $< rliable
	touch $(ORACLE_STAMP)

# rocrate and its validator judge our bundles; nothing of ours needs them.
$(CRATE_STAMP): benchmarks/crate/constraints.txt
	test -x $(CRATE)/bin/python || $(PYTHON) -m venv $(CRATE)
	$(CRATE)/bin/python -m pip --disable-pip-version-check install --quiet --constraint $< rocrate roc-validator
	touch $(CRATE_STAMP)

golden: $(STAMP) $(ORACLE_STAMP)
	$(BIN)/python tools/make_golden.py

# SkyPilot needs an older click than ours. Tests that ask its parser skip without it; the kept task files are always compared.
$(SKY_STAMP): benchmarks/skypilot-constraints.txt
	test -x $(SKY)/bin/python || $(PYTHON) -m venv $(SKY)
	$(SKY)/bin/python -m pip --disable-pip-version-check install --quiet --constraint $< skypilot
	touch $(SKY_STAMP)

sky: $(STAMP) $(SKY_STAMP)
	$(BIN)/python -m tools.make_sky_golden

demo: $(STAMP)
	$(BIN)/fairtrial compare --labels 1000 --study demo --output demo.png
	$(BIN)/fairtrial analyze demo

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Tests of launchers wait more than they compute: beside the others they take hardly any time of their own.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs=3 --keep-going lint test-launchers test-others

# What this one says comes in one piece, when it is done; the others show how far they are.
test-launchers: $(STAMP)
	@said=$$(mktemp); $(BIN)/python -m pytest tests/launch > $$said 2>&1; code=$$?; cat $$said; rm $$said; exit $$code

test-others: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/launch

# The inner loop, about a minute on two idle cores: the first case of every quick test, in every package. `make test` is what counts.
test-fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal --fast

# Which lines the tests run, in subprocesses and workers too: make coverage TESTS=tests/stats for a part of them.
TESTS ?= tests
coverage: $(STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[coverage]'
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=html --cov-report=term:skip-covered $(TESTS)
	$(BIN)/python tools/least_covered.py

# 20,000 inputs of every kind, each in a process of its own that can harm nothing; FUZZ='--inputs 500 --kind table' for less.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(FUZZ)

# All steps of the project, or one: make evidence STEP=5. The name of a benchmark works too.
evidence: $(STAMP) $(ORACLE_STAMP) $(SKY_STAMP) $(CRATE_STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[peers]'
	$(BIN)/python -m benchmarks.evidence $(STEP)

benchmarks: $(STAMP) $(ORACLE_STAMP) $(CRATE_STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[peers]'
	$(BIN)/python -m benchmarks

# That measuring works at all, in a minute: ours alone, unless peers happen to be installed.
benchmarks-smoke: $(STAMP)
	$(BIN)/python -m benchmarks startup logging_calls
	$(BIN)/fairtrial profile e2e --smoke --profile-name smoke
	$(BIN)/fairtrial profile check smoke 'policy_lag_steps.max<=max_policy_lag_steps'

docs: $(STAMP)
	$(BIN)/python tools/make_docs.py

# Runs every command of Start here and How to again and writes what it prints into the pages: about two minutes.
howto: $(STAMP)
	$(BIN)/python tools/shown_commands.py docs/start.md docs/howto/[!i]*.md

# Draws every chart from small runs into docs/pictures: about three minutes of CPU.
pictures: $(STAMP)
	$(BIN)/python tools/make_pictures.py

# The site generator needs nothing of ours, so it has an environment of its own. Warnings and dead links are errors.
$(SITE_STAMP): tools/site/constraints.txt
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip --disable-pip-version-check install --quiet --constraint $< zensical
	touch $(SITE_STAMP)

site: $(SITE_STAMP)
	$(SITE)/bin/python tools/make_site.py

# Builds the package and checks it; with TAG=v0.1.0, that this is the version of the source.
DIST := .venv-dist
dist:
	test -z "$(TAG)" || grep -qF '"$(patsubst v%,%,$(TAG))"' src/fairtrial/version.py
	test -x $(DIST)/bin/python || $(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip --disable-pip-version-check install --quiet build twine
	rm -rf dist
	$(DIST)/bin/python -m build
	$(DIST)/bin/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) $(ORACLE) $(SKY) $(CRATE) $(SITE) $(DIST) site build dist htmlcov .coverage .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
