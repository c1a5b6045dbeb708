# The four doors: demo, test, check, bench. Each sets up .venv first, and that is quick when nothing changed.
# `make -k check` goes on after the first check that fails.

CANDIDATES := $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3)
BIN := .venv/bin
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off
NEWS := sed -u '/^Requirement already satisfied/d'
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: setup demo test check bench soak fmt clean \
  check-format check-lint check-imports check-sources check-mypy check-pyright
.NOTPARALLEL:

setup: .venv/.demo
	@echo "ready: make demo, make test, make check, make bench"

demo: .venv/.demo
	$(BIN)/headtail demo

# A file's tests stay together: rigs of processes and fixtures of a module are made once.
test: .venv/.dev
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

check: check-format check-lint check-imports check-sources check-mypy check-pyright

check-format: .venv/.dev
	$(BIN)/ruff format --check .

check-lint: .venv/.dev
	$(BIN)/ruff check .

check-imports: .venv/.dev
	$(BIN)/lint-imports

check-sources: .venv/.dev
	$(BIN)/python -m pytest tests/test_sources.py

check-mypy: .venv/.dev
	$(BIN)/mypy

check-pyright: .venv/.dev
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: .venv/.dev
	$(BIN)/headtail bench

soak: .venv/.dev
	$(BIN)/headtail sim check --endless --scenario all

fmt: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.python:
	@for python in $(CANDIDATES); do \
	  if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "setting up .venv with $$($$python --version)"; \
	    $$python -m venv --clear .venv && touch $@; exit; \
	  fi; \
	done; \
	echo "headtail needs Python 3.11 or later with its venv module; none of these is: $(CANDIDATES)" >&2; \
	echo "name one with: make PYTHON=/path/to/python3" >&2; exit 1

.venv/.demo: pyproject.toml .venv/.python
	@echo "installing headtail and what the demo needs into .venv (some minutes, the first time)"
	$(INSTALL) -e '.[demo]' | $(NEWS)
	@touch $@

.venv/.dev: pyproject.toml .venv/.python
	@echo "installing headtail, the tests and the checkers into .venv (some minutes, the first time)"
	$(INSTALL) -e '.[dev]' | $(NEWS)
	@touch .venv/.demo $@
