# Every target sets up what it needs: Python 3.11+ and make are enough.
PYTHON ?= python3
BIN := .venv/bin
LOCK := uv pip compile --quiet --generate-hashes --no-emit-index-url --universal --python-version 3.11

.DEFAULT_GOAL := help
.PHONY: help setup test check unit spark bench soak docs demo demo-log lock clean

help:            ## show this list
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/.ready   ## create .venv from the lock

.venv/.ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tailrace needs Python 3.11 or newer; say which: make PYTHON=python3.12 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

test: check unit      ## everything CI checks: ruff, mypy, layers, pytest

check: .venv/.ready   ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# What fails is run once more by itself: a busy machine can make a test of real processes and servers late, not wrong.
unit: .venv/.ready    ## pytest without the soaks, in two processes
	$(BIN)/pytest -m "not soak" -n 2 --dist loadfile --no-loadscope-reorder || \
		$(BIN)/pytest -m "not soak" --last-failed --last-failed-no-failures=none

spark: .venv/.ready   ## of these only the Spark format's, on local[2] and on a cluster of its own
	$(BIN)/pytest -m "not soak" tests/spark

soak: .venv/.ready    ## the long runs: many schedules, many kills
	$(BIN)/pytest -m soak --timeout 0 -s

bench: .venv-bench/.ready .venv-peers/.ready   ## side by side with the peers: make bench ARGS="append --quick"
	.venv-bench/bin/python -m benchmarks.run $(ARGS)

.venv-bench/.ready: requirements/dev.txt requirements/bench.txt pyproject.toml
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt -r requirements/bench.txt
	.venv-bench/bin/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

.venv-peers/.ready: requirements/peers.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/peers.txt
	@touch $@

demo: .venv/.ready    ## a shop in PostgreSQL copied and followed on Spark, kill -9 in between: 1-2 min
	@$(BIN)/python -m examples.demo_shop

demo-log: .venv/.ready   ## two writers, one killed with -9, all that was acknowledged read back: 10 s
	@$(BIN)/python examples/demo_log.py

docs: .venv/.ready    ## the documentation as HTML in build/docs, links checked
	@$(BIN)/python tools/docs.py

lock: .venv/.ready    ## write requirements/*.txt anew from pyproject.toml
	$(BIN)/$(LOCK) --all-extras --group dev --group servers pyproject.toml -o requirements/dev.txt
	$(BIN)/$(LOCK) -c requirements/dev.txt requirements/bench.in -o requirements/bench.txt
	$(BIN)/$(LOCK) requirements/peers.in -o requirements/peers.txt

clean:           ## remove what the targets made
	rm -rf .venv .venv-bench .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
