# What a contributor runs; CONTRIBUTING.md explains it. `make install` first.
PYTHON ?= python
.PHONY: help install test lint docs keys bench smoke ci

help:
	@echo "make install  the package with what development needs, into the active environment"
	@echo "make test     the plain run of the tests; make ci: all of them, as CI runs them"
	@echo "make lint     ruff, mypy, typos, docstrings, and which room imports which (import-linter)"
	@echo "make docs     the pages and the API reference, into build/site; links are checked"
	@echo "make keys     docs/keys.md anew, from the settings"
	@echo "make bench    the quick benchmarks, one after the other (about twenty minutes)"
	@echo "make smoke    every benchmark at its smallest size: whether it runs, no figures"

install:
	$(PYTHON) -m pip install -e '.[dev,docs]'
	pre-commit install

test:
	$(PYTHON) -m pytest

lint:
	ruff check .
	ruff format --check .
	$(PYTHON) -m mypy
	typos
	lint-imports
	$(PYTHON) scripts/prose.py

docs:
	$(PYTHON) -m mkdocs build --strict

keys:
	$(PYTHON) scripts/keys.py

bench:
	$(PYTHON) -m tests.benchmarks.engine_efficiency --quick
	$(PYTHON) -m tests.benchmarks.scale --quick
	$(PYTHON) -m tests.benchmarks.estimators --quick
	$(PYTHON) -m tests.benchmarks.evaluation --quick
	$(PYTHON) -m tests.benchmarks.forecast --quick
	$(PYTHON) -m tests.benchmarks.checker --quick

smoke:
	$(PYTHON) -m tests.benchmarks.smoke

ci:
	bash .ci/run
