# The targets of a checkout. `make` alone lists them.
.POSIX:
.DEFAULT_GOAL := help
.PHONY: help install quickstart test test-long test-bare test-rare fuzz lint format docs bench clean
JOBS ?= 6
LONG_JOBS ?= 4
INPUTS ?= 10000
SLOWEST = --durations=20 --durations-min=10
BIN := .venv/bin
SOURCES := src tests benchmarks examples scripts docs

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

install: .venv/.installed  ## create .venv with .venv/bin/stackyard
	@echo 'stackyard is $(CURDIR)/.venv/bin/stackyard. To have it on PATH, in this shell or in ~/.profile:'
	@echo '    export PATH="$(CURDIR)/.venv/bin:$$PATH"'

quickstart: install  ## deploy a small stack, load it, run two MPI ranks in it (a minute)
	@scripts/quickstart.sh

test: .venv/.installed-dev  ## lint, types and all tests but the long ones, with the real programs
	@scripts/test-programs.sh
	$(MAKE) lint
	@$(BIN)/python -m compileall -q src tests/standins  # once, also where PYTHONDONTWRITEBYTECODE is set: they are started a thousand times
	@PYTHONPATH=tests $(BIN)/python -m support.prepare
	$(BIN)/pytest -n $(JOBS) --dist worksteal --timeout 400 $(SLOWEST) -m "not long and not bare and not rare"

test-long: .venv/.installed-dev  ## tests that compile Horovod, start Ray, wait for timeouts, try every combination (28 minutes)
	@scripts/test-programs.sh long
	@$(BIN)/python -m compileall -q src tests/standins
	$(BIN)/pytest -n $(LONG_JOBS) --dist loadfile --no-loadscope-reorder $(SLOWEST) -m long

test-rare: .venv/.installed-dev  ## a year with 200 deploys, Horovod compiled on a base: before a release (half an hour)
	@scripts/test-programs.sh
	$(BIN)/pytest -m rare

fuzz: .venv/.installed-dev  ## try INPUTS damaged files on every reader (an hour); the failing ones are tried again first
	STACKYARD_FUZZ=$(INPUTS) $(BIN)/pytest -n $(JOBS) tests/fuzz

test-bare: .venv/.installed-dev  ## README's commands on a machine without anything, and each Python from 3.10 to 3.14
	@scripts/test-programs.sh
	$(BIN)/pytest -n 3 --dist loadfile -m bare tests/bare

lint: .venv/.installed-dev  ## ruff, mypy, the direction of imports, and calls by path
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python scripts/path_calls.py

format: .venv/.installed-dev  ## format the sources with ruff
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

docs: .venv/.installed-docs  ## build the documentation site in build/docs; every warning is an error
	$(BIN)/python -m sphinx -W --keep-going -n -q -E -j auto -c docs . build/docs
	@echo "build/docs/docs/index.html"

bench: .venv/.installed-dev  ## measure the figures of docs/performance.md
	@scripts/test-programs.sh
	$(BIN)/python -m benchmarks

clean:  ## remove everything that can be rebuilt
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist quickstart-yard runs src/*.egg-info
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: pyproject.toml scripts/make-venv.sh
	@scripts/make-venv.sh
	@touch $@

.venv/.installed-dev: pyproject.toml scripts/make-venv.sh
	@scripts/make-venv.sh dev
	@touch .venv/.installed $@

.venv/.installed-docs: pyproject.toml scripts/make-venv.sh
	@scripts/make-venv.sh docs
	@touch .venv/.installed $@
