# Needs python3 (3.11 or newer, with venv) and make; the rest is installed into .venv.

PYTHON ?= python3
ARGS ?=
# A file's tests share what it set up, so that they stay together.
PARALLEL ?= --numprocesses auto --dist loadfile
FUZZ_EXAMPLES ?= 10000
FUZZ_VALUES ?= 1000000
FUZZ_SECONDS ?= 600

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
PACKAGES := ckptfmt participant inspector
# Checked with the packages where they hold Python files.
PROGRAMS := $(patsubst %/,%,$(sort $(dir $(wildcard examples/*.py benchmarks/*.py))))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check format fuzz vectors mutants bench wheel lock clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 10

demo: .venv/.installed  ## a job that survives kill -9, then a damaged checkpoint (ARGS="--seed 3")
	@$(BIN)/python -m examples.demo $(ARGS)

test: .venv/.installed  ## run the tests (ARGS="-k name" selects)
	@$(BIN)/python -m pytest tests $(PARALLEL) $(ARGS)

check: .venv/.installed  ## lint, formatting, types, import rules
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { $(BIN)/ruff format --diff .; exit 1; }
	@$(BIN)/mypy --no-error-summary $(PACKAGES) $(PROGRAMS)
	@log=$$($(BIN)/lint-imports 2>&1) || { echo "$$log"; exit 1; }

format: .venv/.installed  ## put the sources into their one format
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

fuzz: .venv/.fuzzer  ## FUZZ_EXAMPLES a property, FUZZ_VALUES a value loop, FUZZ_SECONDS by coverage
	@HYPOTHESIS_PROFILE=fuzz FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) FUZZ_VALUES=$(FUZZ_VALUES) \
		$(BIN)/python -m pytest tests -m "hypothesis or fuzz" $(ARGS)
	@$(BIN)/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS)

vectors: .venv/.installed  ## make fixtures/vectors and fixtures/hostile; what is frozen may not change
	@$(BIN)/python -m tests.vectors.generate

mutants: .venv/.installed  ## break participant on purpose; each defect has a test that notices (ARGS="retire")
	@$(BIN)/python tests/mutants/run.py $(ARGS)

bench: .venv/.installed  ## measure commit and restore (ARGS="--sessions 200 --repeat 3")
	@$(BIN)/python benchmarks/commit_restore.py $(ARGS)

wheel: .venv/.installed  ## build the wheel into dist/
	@rm -rf dist
	@$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

lock: .venv/.installed  ## renew requirements.lock from pyproject.toml (ARGS=--upgrade moves versions)
	@$(BIN)/uv pip compile pyproject.toml --quiet --group dev --all-extras --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
		--custom-compile-command "make lock" --output-file requirements.lock $(ARGS)

clean:  ## remove everything that this file makes
	@rm -rf .venv dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# A new lock starts from an empty environment: nothing stays that it does not name.
.venv/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "installing the locked dependencies into .venv" >&2
	@$(PYTHON) -m venv --clear .venv
	@$(PIP) install --no-deps --require-hashes --requirement requirements.lock
	@touch $@

.venv/.installed: .venv/.locked pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.fuzzer: tests/fuzz/requirements.lock .venv/.installed
	@$(PIP) install --no-deps --require-hashes --requirement tests/fuzz/requirements.lock
	@touch $@
