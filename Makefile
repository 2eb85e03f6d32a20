# One command for set-up, one for tests. Everything else is a shortcut for something documented.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed

.PHONY: setup demo test lint evidence benchmarks docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tools/install_torch.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/install_torch.py
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/fairtrial launch examples/demo.yaml

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2

evidence: $(STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[peers]'
	$(BIN)/python -m benchmarks.evidence

benchmarks: $(STAMP)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[peers]'
	$(BIN)/python -m benchmarks

docs: $(STAMP)
	$(BIN)/python tools/make_docs.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
