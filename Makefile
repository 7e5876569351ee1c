# `make demo` and `make test` need Python 3.11 or newer and nothing else: each makes its environment first.
# PYTHON=python3.12 make test uses that interpreter; VENV=/some/where puts the environment there.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?= -n 2
BENCH_ARGS ?=

bin := $(VENV)/bin
installed := $(VENV)/installed

.DEFAULT_GOAL := help
.PHONY: help install demo test lint format types package-test bench speed zoo fuzz readme clean

help:
	@echo 'make demo          optimize a training-form MobileOne-S0 and print how much faster it became'
	@echo 'make test          run the tests (PYTEST_ARGS="-n 2" are the arguments of pytest)'
	@echo 'make lint          ruff: rules and format'
	@echo 'make types         mypy --strict superopt'
	@echo 'make package-test  build sdist and wheel, install the wheel in a fresh environment, run it'
	@echo 'make bench         how much faster models become, beside other optimizers (BENCH_ARGS="--models bert")'
	@echo 'make speed         time the optimizer on models of growing size'
	@echo 'make zoo           optimize the real models that packages ship, and print a table'
	@echo 'make readme        write the tables of README that are made from the rule files and from the code'
	@echo 'make fuzz          draw random models and check what comes of them until stopped; finds go to fuzz-finds/'
	@echo 'make clean         remove the environment and what the other targets wrote'

$(installed): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "superopt: $(PYTHON) is $$($(PYTHON) --version 2>&1); Python 3.11 or newer is needed (PYTHON=... make ...)" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(bin)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	@touch $@

install: $(installed)

demo/mobileone-s0.onnx: benchmarks/models.py | $(installed)
	@mkdir -p $(@D)
	$(bin)/python -m benchmarks.models mobileone-s0 $@

demo: $(installed) demo/mobileone-s0.onnx
	$(bin)/superopt optimize demo/mobileone-s0.onnx

test: $(installed)
	$(bin)/python -m pytest $(PYTEST_ARGS)

lint: $(installed)
	$(bin)/ruff check .
	$(bin)/ruff format --check .

format: $(installed)
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

types: $(installed)
	$(bin)/mypy --strict superopt

package-test: $(installed)
	$(bin)/python -m pytest -m package tests/test_package.py

bench: $(installed)
	@mkdir -p bench
	$(bin)/python -m benchmarks.run --json bench/results.json $(BENCH_ARGS)

speed: $(installed)
	$(bin)/python -m benchmarks.speed

zoo: $(installed)
	$(bin)/python -m benchmarks.zoo

fuzz: $(installed)
	$(bin)/python -m benchmarks.fuzz

readme: $(installed)
	$(bin)/python -m tests.test_families
	SUPEROPT_BLESS=1 $(bin)/python -m pytest -q tests/test_supported.py

clean:
	rm -rf $(VENV) .venvs demo bench dist build
