# `make` alone prints the targets. Everything is installed into .venv and node_modules, once: a stamp there that is newer
# than the files which name the packages says that nothing is left to do.

MAKEFLAGS += --no-builtin-rules
# The tests start hundreds of processes: without compiled modules, half of their time is compilation.
export PYTHONDONTWRITEBYTECODE :=
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

python := .venv/bin/python
python_packages := .venv/packages-installed
command := .venv/command-installed
distributions := . ./broker ./clients ./jobs/reconcile
compiled := .venv/modules-compiled
node_packages := node_modules/.package-lock.json
npm_options := --ignore-scripts --no-audit --no-fund

# Without a version, the Spark of .venv. Spark 3.5 is in the runtimes of Synapse, Fabric and Databricks with Python 3.11.
spark_venv := $(if $(version),build/spark-$(version),.venv)
spark_python := $(spark_venv)/bin/python
spark_packages := $(if $(version),$(spark_venv)/packages-installed,$(command))

.PHONY: help demo sbom test test-fast check simulate properties spark bench reference screenshots site bench-ocean capacity bench-full conformance suites faults fuzz other-brokers format lock wheels clean installed java

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: ## two sites on this machine, 2,000 real messages, a table of what arrived
	@$(MAKE) --no-print-directory --jobs 2 installed
	.venv/bin/busway demo

test: installed java $(compiled) ## all tests, of the nightly job the most important: make spark runs the others
	$(python) -m pytest --numprocesses 8 --dist loadfile --no-loadscope-reorder

test-fast: $(command) ## the tests that need neither Java nor Node.js, except the long ones, in under a minute
	$(python) -m pytest --numprocesses auto --dist loadfile --quiet -m 'not long' tests/architecture tests/unit tests/golden tests/contracts broker/tests/unit

check: $(command) ## formatter, linter, plain English, strict types, import contracts, Bicep
	$(python) -m ruff format --check
	$(python) -m ruff check
	$(python) tools/check-english
	$(python) -m mypy --exclude '^broker/tests/'
	$(python) -m mypy --package broker.tests
	.venv/bin/lint-imports --no-logo
	tools/check-bicep

histories ?= 10000
simulate: $(command) java ## random histories of line, broker and host in virtual time, held against oracles; of 2,000 and more the job on Spark judges some; seconds=60, first=4711: seeds from there on, seed=4711 topology=pair: that one
	$(python) -m tests.simulation --histories $(histories) $(if $(seconds),--seconds $(seconds)) $(if $(first),--first $(first)) \
	  $(if $(seed),--seed $(seed)) $(if $(topology),--topology '$(topology)')

spark: $(spark_packages) java ## all tests of the nightly job, also on a cluster of two workers; version=3.5 or 4.2: with that Spark, and Delta
	BUSWAY_SLOW=1 $(spark_python) -m pytest --quiet tests/jobs

bench: installed java ## benchmarks: a table, and build/bench.json
	$(python) -m benchmarks

faults: installed ## every kind of fault with real parts: what was lost, delivered twice or out of order, as a table
	$(python) -m tests.faults $(only)
	BUSWAY_SLOW=1 $(python) -m pytest -q tests/faults/test_reconciled.py tests/faults/test_reconciled_kafka.py tests/faults/test_reconciled_queues.py tests/faults/test_forward.py tests/faults/test_stopped_forward.py tests/faults/test_losses.py tests/faults/test_amqp_poison.py tests/faults/test_repaired.py tests/faults/test_dead_letters.py tests/faults/test_evacuation.py tests/faults/test_upgrade.py tests/end_to_end/test_slow_pages.py tests/end_to_end/test_demo.py tests/end_to_end/test_pause.py tests/end_to_end/test_project.py tests/end_to_end/test_smoke.py

other-brokers: installed ## targets of kinds amqp and kafka at ActiveMQ Artemis and Classic, RabbitMQ 3 and 4 and Kafka: fetches them, then kills them, fills their queues and compares what arrives
	tools/other-brokers
	BUSWAY_SLOW=1 $(python) -m pytest -q tests/other_brokers

minutes ?= 1
fuzz: installed ## damaged messages for AMQP, codecs, rules, the tasks of all editors, and damaged frames for the broker, with new seeds that are printed; minutes=30 for a longer run
	$(python) -m tests.fuzz amqp --seconds $$(($(minutes) * 10))
	$(python) -m tests.fuzz editors --seconds $$(($(minutes) * 10))
	$(python) -m tests.fuzz tasks --seconds $$(($(minutes) * 25))
	$(python) -m tests.fuzz frames --seconds $$(($(minutes) * 15))

properties: $(command) ## all properties with a thousand random examples instead of a few; takes minutes
	$(python) -m pytest --quiet --numprocesses auto -m hypothesis --hypothesis-profile many tests/unit tests/properties tests/contracts broker/tests

conformance: installed ## Microsoft's SDKs for Python, JavaScript, Java and Go against the broker: a table; parts="java go": those only; takes half an hour
	$(python) -m tests.conformance $(parts)

suites: $(command) ## public test suites for the formats of editors, fetching nothing: JSON Schema, and the others whole from checkouts in the folder BUSWAY_SUITES
	$(python) -m pytest --quiet --numprocesses auto tests/suites tests/unit/editors/test_json_schema_suite.py tests/unit/editors/test_ecma_patterns.py

bench-ocean: installed ## messages per second and what they cost, with round trips of 0 to 150 ms to the target; takes ten minutes
	$(python) -m benchmarks benchmarks.ocean

capacity: installed ## messages per second by round trip and size, written into docs/capacity.md; takes six minutes on a quiet machine
	$(python) -m benchmarks.capacity

bench-full: installed java ## messages end to end, memory, sessions, reconciliation of 5 and 20 million messages; takes a quarter of an hour and 15 GB of disk
	$(python) -m benchmarks.end_to_end
	$(python) -m benchmarks.memory
	$(python) -m benchmarks.sessions
	$(python) -m benchmarks.reconcile --full

format: $(command) ## rewrite the sources as the formatter and the linter want them
	$(python) -m ruff format
	$(python) -m ruff check --fix

lock: $(command) ## write the lock files after a change to a requirements file
	for file in requirements requirements-dev jobs/reconcile/requirements tools/site/requirements .github/requirements tests/jobs/requirements-spark-4.2 \
	  tests/jobs/requirements-spark-3.5; do \
	  case $$file in *-3.5) version=3.11 ;; *) version=3.13 ;; esac; \
	  $(python) -m uv pip compile --quiet --universal --generate-hashes --python-version $$version --no-header \
	    --output-file $$file.lock $$file.txt || exit 1; \
	done

reference: $(command) ## the pages and schemas that are made from models, docstrings and golden cases
	$(python) -m tools.reference

screenshots: $(command) ## docs/images, taken of the pages with sample data; needs Chromium
	PYTHONPATH=. $(python) tools/screenshots

site: build/site-packages/packages-installed ## build/site: the documentation as a site that opens from the disk, with all links checked
	build/site-packages/bin/python tools/site/navigation.py build/site-pages
	NO_MKDOCS_2_WARNING=1 build/site-packages/bin/mkdocs build --strict --config-file tools/site/mkdocs.yml

sbom: $(command) ## build/sbom.json: the packages of the deployed app with versions and hashes, as CycloneDX
	@mkdir -p build
	PYTHONWARNINGS=ignore $(python) -m uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements.lock \
	  --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json

wheels: $(command) ## build/wheels: busway, busway-broker, busway-clients and busway-reconcile
	@# A file of an earlier build would become part of a wheel.
	rm -rf build/wheels $(distributions:%=%/build/lib)
	$(python) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --wheel-dir build/wheels $(distributions)

clean: ## remove everything that was installed or built
	rm -rf .venv node_modules build */build */*/build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

installed: $(command) $(node_packages)

$(python_packages): .python-version requirements-dev.lock
	@interpreter=$$(tools/find-python) && echo "Installing Python packages into .venv" && "$$interpreter" -m venv --clear .venv
	@$(python) -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement requirements-dev.lock
	@touch $@

$(command): $(python_packages) $(distributions:%=%/pyproject.toml)
	@$(python) -m uv pip install --quiet --python $(python) --offline --link-mode copy --no-deps --no-build-isolation $(distributions:%=--editable %)
	@touch $@

# Once, by one process: six would compile the same modules at the same time.
$(compiled): $(command)
	@$(python) -m pytest --collect-only --quiet > /dev/null
	@touch $@

build/spark-%/packages-installed: tests/jobs/requirements-spark-%.lock
	@interpreter=$$(tools/find-python $(if $(filter 3.5,$*),3.11)) && "$$interpreter" -m venv --clear build/spark-$*
	@build/spark-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement $<
	@touch $@

build/site-packages/packages-installed: tools/site/requirements.lock
	@interpreter=$$(tools/find-python) && "$$interpreter" -m venv --clear build/site-packages
	@build/site-packages/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --requirement $<
	@touch $@

$(node_packages): package.json package-lock.json
	@tools/check-node
	@echo 'Installing npm packages into node_modules'
	@# The versions are exact, so that what an old answer of the registry names is still right.
	@npm ci --prefer-offline $(npm_options) || npm ci $(npm_options)
	@touch $@

java:
	@tools/check-java
