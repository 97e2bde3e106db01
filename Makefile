# Every target sets up what it needs: Python 3.11+ and make are enough.
PYTHON ?= python3
BIN := .venv/bin
LOCK := uv pip compile --quiet --generate-hashes --no-emit-index-url --universal --python-version 3.11

.DEFAULT_GOAL := help
.PHONY: help setup test check prepare unit quick spark bench soak deploy-env docs docs-serve demo demo-log console-demo lock clean

help:            ## show this list
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/.ready   ## create .venv from the lock

.venv/.ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tailrace needs Python 3.11 or newer; say which: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

test: .venv/.ready    ## everything CI checks: ruff, mypy, layers, pytest
	@$(MAKE) --no-print-directory -j 2 check prepare
	@$(MAKE) --no-print-directory unit

check: .venv/.ready   ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

prepare: .venv/.ready   ## what tests need and what takes long to make, once for a checkout
	$(BIN)/python -m tests.servers.prepare

# A test that fails once fails the run; only tests of real processes, which can be late, are run again: tools/run_tests.py.
unit: prepare         ## pytest without the soaks
	$(BIN)/python tools/run_tests.py

# The log, the event store and the storage below them, without servers, killed processes and thousands of schedules.
quick: .venv/.ready   ## a fast part of these, for every change: below 2 min on two cores
	$(BIN)/pytest -m "not (soak or server or spark or processes)" -k "not (schedule or machine or mutant)" \
		-n 2 --dist loadfile tests/log tests/events tests/coordination tests/storage

spark: .venv/.ready   ## of these only the Spark format's, on local[2] and on a cluster of its own
	$(BIN)/pytest -m "not soak" tests/spark

soak: .venv/.ready    ## the long runs: many schedules, many kills
	$(BIN)/pytest -m soak --timeout 0 -s

bench: .venv-bench/.ready .venv-peers/.ready   ## side by side with the peers: make bench ARGS="append --quick"
	.venv-bench/bin/python -m benchmarks.run $(ARGS)

.venv-bench/.ready: requirements/dev.txt requirements/bench.txt pyproject.toml
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/dev.txt -r requirements/bench.txt
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

.venv-peers/.ready: requirements/peers.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/peers.txt
	@touch $@

.venv-cdk/.ready: requirements/cdk.txt
	test -x .venv-cdk/bin/python || $(PYTHON) -m venv .venv-cdk
	.venv-cdk/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/cdk.txt
	@touch $@

deploy-env: .venv-cdk/.ready   ## the environment that deploys to AWS, see deploy/aws/README.md

demo: .venv/.ready    ## a shop in PostgreSQL copied and followed on Spark, kill -9 in between: 1-2 min
	@$(BIN)/python -m examples.demo_shop

demo-log: .venv/.ready   ## two writers, one killed with -9, all that was acknowledged read back: 10 s
	@$(BIN)/python examples/demo_log.py

console-demo: .venv/.ready   ## a home with everything moving, and its console: make console-demo ARGS=--pipeline
	@$(BIN)/python -m examples.demo_console $(ARGS)

docs: .venv/.ready    ## the documentation as a site in build/docs; a broken link or anchor fails
	$(BIN)/zensical build --strict

docs-serve: .venv/.ready    ## the same on a port of this machine, built again at every change
	$(BIN)/zensical serve

lock: .venv/.ready    ## write requirements/*.txt from pyproject.toml and *.in
	$(BIN)/$(LOCK) --all-extras --group dev --group docs --group servers pyproject.toml -o requirements/dev.txt
	$(BIN)/$(LOCK) -c requirements/dev.txt requirements/bench.in -o requirements/bench.txt
	$(BIN)/$(LOCK) requirements/peers.in -o requirements/peers.txt
	for name in lambda-indexer lambda-consumer; do $(BIN)/$(LOCK) -c requirements/dev.txt requirements/$$name.in -o requirements/$$name.txt; done
	for name in cdk node bloop ministack; do $(BIN)/$(LOCK) requirements/$$name.in -o requirements/$$name.txt; done

clean:           ## remove what the targets made
	rm -rf .venv .venv-bench .venv-peers .venv-cdk .servers deploy/aws/build deploy/aws/cdk.out .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
