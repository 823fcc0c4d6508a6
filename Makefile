# `make` alone prints the targets. Everything is installed into .venv and node_modules, once: a stamp there that is newer
# than the files which name the packages says that nothing is left to do.

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

python := .venv/bin/python
python_packages := .venv/packages-installed
command := .venv/command-installed
node_packages := node_modules/.package-lock.json

.PHONY: help demo test test-fast check bench bench-full faults format lock clean packages java

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: packages ## two sites on this machine, 2,000 real messages, a table of what arrived
	.venv/bin/busway demo

test: packages java ## all tests
	$(python) -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder

test-fast: $(command) ## the tests that need neither Java nor Node.js, in under a minute
	$(python) -m pytest --numprocesses 3 --dist loadfile --quiet tests/architecture tests/unit tests/golden tests/contracts

check: $(command) ## formatter, linter, plain English, strict types, import contracts
	$(python) -m ruff format --check
	$(python) -m ruff check
	$(python) tools/check-english
	$(python) -m mypy
	.venv/bin/lint-imports --no-logo

bench: packages java ## benchmarks: a table, and build/bench.json
	$(python) -m benchmarks

faults: packages ## all faults on every route, and a soak: what was lost, delivered twice or out of order, as a table
	$(python) -m tests.faults $(only)
	BUSWAY_SLOW=1 $(python) -m pytest -q tests/faults/test_reconciled.py

bench-full: packages java ## messages end to end, memory, sessions, reconciliation of 5 and 20 million messages; takes a quarter of an hour and 15 GB of disk
	$(python) -m benchmarks.end_to_end
	$(python) -m benchmarks.memory
	$(python) -m benchmarks.sessions
	$(python) -m benchmarks.reconcile --full

format: $(command) ## rewrite the sources as the formatter and the linter want them
	$(python) -m ruff format
	$(python) -m ruff check --fix

lock: $(command) ## write the lock files after a change to a requirements file
	for file in requirements requirements-dev jobs/reconcile/requirements; do \
	  $(python) -m uv pip compile --quiet --universal --generate-hashes --python-version 3.13 --no-header \
	    --output-file $$file.lock $$file.txt || exit 1; \
	done

clean: ## remove everything that was installed or built
	rm -rf .venv node_modules build busway.egg-info clients/build clients/busway_clients.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

packages: $(command) $(node_packages)

$(python_packages): .python-version requirements-dev.lock
	@interpreter=$$(tools/find-python) && echo "Installing Python packages into .venv" && "$$interpreter" -m venv --clear .venv
	@$(python) -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement requirements-dev.lock
	@touch $@

$(command): $(python_packages) pyproject.toml clients/pyproject.toml
	@$(python) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable clients
	@touch $@

$(node_packages): package.json package-lock.json
	@tools/check-node
	@echo 'Installing npm packages into node_modules'
	@npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

java:
	@tools/check-java
