# The only entry point people type; .ci/run calls the same targets. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
ifndef AT_ONCE
.NOTPARALLEL: # the check of prerequisites comes first
endif
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
# Otherwise each process of the tests would compile all tests.
unexport PYTHONDONTWRITEBYTECODE

# `make lock` uses 3.11; any later version that the locked packages support works, too.
# A python3.11 that does not run (a shim of pyenv, for example) does not hide a python3 that does.
PYTHON ?= $(shell python3.11 -c pass 2>/dev/null && command -v python3.11 || echo python3)
ARGS ?=
SEED ?= 1
KILLS ?= 100
SEEDS ?= 100
UNIT_WITHOUT ?=

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
# Runs the test files in several processes; ARGS="-n 8" starts more of them.
SIDE_BY_SIDE := --dist loadfile --no-loadscope-reorder
CODE := $(wildcard namesrv_stream jobs tests)

# Packages to run, and further packages for the tests and the developers' tools; both in one virtual environment.
RUN_LOCK := deploy/image/requirements.lock
RUN_JARS := .jars/spark/.copied .jars/kafka/.copied
TEST_JARS := .jars/rocketmq/.copied .jars/rocketmq4/.copied
SPARK_CLASSES := build/spark-classes.jsa
needs_maven = $(if $(filter-out $(wildcard $(RUN_JARS)),$(RUN_JARS)),maven)

# $(call step,what,command): print what happens, run the command, print how long it took.
step = @began=$$SECONDS; echo "setup: $(1) …"; $(2); echo "setup: $(1): done in $$((SECONDS - began)) s"
install = conf/install-packages $(1)/bin/python $(2)
# Shows the jars that Maven has downloaded, and errors. Maven always resets the terminal's colours on stderr.
mvn_progress = awk '/Downloaded from .*\.jar/ { sub(/ at .*/, ""); sub(/.*\//, "  "); print; fflush() } /ERROR/ { print; fflush() }'
copy_jars = conf/check-prerequisites "$(PYTHON)" maven && rm -rf $(1) && \
	mvn -B -Dstyle.color=never -f $(2) dependency:copy-dependencies -DoutputDirectory=$(abspath $(1)) \
	2> >(sed 's/\x1b\[[0-9;]*m//g' >&2) | $(mvn_progress)

##@ Run
.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: prerequisites $(VENV)/.native-built $(RUN_JARS) ## Build what is missing to run: virtual environment, native lane, jars of Spark and Kafka

.PHONY: run
run: setup ## Start everything on this machine; Ctrl-C stops it. Flags: make run ARGS="--remoting-port 0"
	@exec $(BIN)/namesrv-stream up $(ARGS)

.PHONY: history
history: setup ## Bring the history tables up to date once; needs Kafka. Flags: make history ARGS="--data-dir DIR"
	@exec $(BIN)/namesrv-stream history-job --once $(ARGS)

.PHONY: demo
demo: setup ## A guided run of less than a minute: start, register, query, kill, expire, history
	@exec $(BIN)/namesrv-stream demo $(ARGS)

##@ Check
.PHONY: test-setup
test-setup: jdk setup $(VENV)/.installed $(SPARK_CLASSES) ## Build what the tests need as well: the developers' tools in addition to `make setup`

.PHONY: check
check: export HYPOTHESIS_PROFILE = quick
# The tests of the history and of replays take a third of the time of all unit tests, because they query many small
# tables. `make unit` and `make test` run them.
check: export UNIT_WITHOUT = tests/unit/history tests/unit/tools/replay
check: $(VENV)/.native-built $(VENV)/.installed ## Before every commit: lint, types, layers, dependencies, unit tests except for those of the history and of replays, in parallel; no JVM
	@$(MAKE) --no-print-directory --jobs --output-sync=target --keep-going AT_ONCE=yes lint types layers dependencies unit

.PHONY: lint
lint: $(VENV)/.installed ## Formatting and lint rules
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)

.PHONY: types
types: $(VENV)/.installed ## mypy --strict
	$(BIN)/mypy $(CODE)

.PHONY: layers
layers: $(VENV)/.installed ## Who may import whom
	$(BIN)/lint-imports

.PHONY: dependencies
dependencies: $(VENV)/.installed ## Check that every dependency is pinned with its hashes, as locked, under a permitted licence; no network
	$(BIN)/python -m tests.support.dependencies

# PyPI's advisories. A failed look-up counts as a failure, because a mirror without advisories answers "nothing known".
.PHONY: audit
audit: $(VENV)/.audit-installed ## Known vulnerabilities of the locked dependencies; needs PyPI itself
	for lock in requirements.lock $(RUN_LOCK) tests/bench/requirements.lock conf/audit/requirements.lock conf/docs/requirements.lock; do \
		$(VENV)/audit/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r $$lock $(ARGS); \
	done

.PHONY: unit
unit: $(VENV)/.native-built $(VENV)/.installed ## Unit tests; no JVM
	$(PYTEST) tests/unit $(addprefix --ignore=,$(UNIT_WITHOUT)) -n $$((2 * $$(getconf _NPROCESSORS_ONLN))) $(ARGS) # half of the time, these tests wait

.PHONY: spark
spark: test-setup ## Tests with a local SparkSession
	$(PYTEST) tests/spark -n 2 $(SIDE_BY_SIDE) $(ARGS)

# Tests that assert times come last, one after the other. pytest exits with 5 if ARGS selects no test.
.PHONY: integration
integration: test-setup .jars/rocketmq/.copied ## Tests of the parts together, with a real Kafka
	@failed=0; \
	$(PYTEST) tests/integration -n 3 $(SIDE_BY_SIDE) -m "not alone" $(ARGS) || [ $$? = 5 ] || failed=1; \
	$(PYTEST) tests/integration -m alone $(ARGS) -n 0 || [ $$? = 5 ] || failed=1; \
	exit $$failed

.PHONY: e2e
e2e: test-setup $(TEST_JARS) ## Unmodified RocketMQ brokers, clients and tools against the whole product
	$(PYTEST) tests/e2e -n 2 $(SIDE_BY_SIDE) $(ARGS)

.PHONY: differential
differential: test-setup .jars/rocketmq/.copied ## The same requests to the Java NameServer and to this one: scenarios and random sequences
	$(PYTEST) tests/differential -n 2 --maxschedchunk 1 $(ARGS)

.PHONY: fuzz
fuzz: test-setup ## Fuzzing: malformed frames and bodies, and the most expensive requests
	$(PYTEST) tests/fuzz -n 2 $(SIDE_BY_SIDE) $(ARGS)

.PHONY: power-cut
power-cut: $(VENV)/.native-built $(VENV)/.installed ## Power cuts and damaged files in a minute: how servers and the job handle the remaining tables
	$(PYTEST) tests/power_cut -n 2 $(ARGS)

.PHONY: simulation
simulation: $(VENV)/.native-built $(VENV)/.installed ## Simulated servers, job, Kafka and brokers in virtual time: a fixed set of seeds; no JVM
	$(PYTEST) tests/simulation $(ARGS)

.PHONY: chaos-short
chaos-short: test-setup ## Chaos tests in a minute: kills, freezes and false clocks, checked against a fleet whose state is known
	$(PYTEST) tests/chaos $(ARGS)

# Every part runs even if an earlier one failed, so that one run shows all failures.
.PHONY: test
test: test-setup $(TEST_JARS) ## Everything: check, spark, integration, differential, e2e, fuzz, power-cut, simulation, chaos-short
	@failed=""; took=""; \
	for part in lint types layers dependencies unit spark integration differential e2e fuzz power-cut simulation chaos-short; do \
		echo "== make $$part"; \
		began=$$(date +%s); \
		$(MAKE) --no-print-directory $$part || failed="$$failed $$part"; \
		took="$$took $$part=$$(($$(date +%s) - began))s"; \
	done; \
	echo "durations:$$took"; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

.PHONY: test-extra
test-extra: test-setup $(VENV)/.console-installed $(VENV)/.moto-installed $(TEST_JARS) ## Slower than `test`: more examples of properties, a Go client (needs Go), slow replicas, Spark clusters, tables in S3, the console in Chromium, 20 minutes of simulation
	@command -v go >/dev/null || { echo "error: no Go for \`make test-extra\`; on Debian: apt-get install golang-go" >&2; exit 3; }
	@command -v chromium chromedriver >/dev/null || { echo "error: no Chromium for \`make test-extra\`; on Debian: apt-get install chromium chromium-driver" >&2; exit 3; }
	HYPOTHESIS_PROFILE=long $(PYTEST) tests/unit tests/fuzz --timeout 3600 $(ARGS)
	DIFFERENTIAL_SEEDS="$$(seq -s' ' 11 60)" $(PYTEST) tests/differential/test_random_sequences.py --timeout 3600 $(ARGS)
	$(PYTEST) tests/extra $(ARGS)
	$(BIN)/python -m tests.simulation --first 1000 --seeds 100000 --minutes 20

# Half an hour or more; an interrupted run continues. To repeat one run: make chaos SEED=1 ARGS="--only 3"
.PHONY: chaos
chaos: test-setup ## At least KILLS (100) random kills by SEED (1), among other faults; a verdict after every run
	@exec $(BIN)/python -m tests.chaos --seed $(SEED) --kills $(KILLS) $(ARGS)

# Uses all cores. To repeat one seed: make simulate ARGS="--seed 7"
.PHONY: simulate
simulate: $(VENV)/.native-built $(VENV)/.installed ## Simulate SEEDS (100) seeds: faults, simulated days, checks, failing seeds
	@exec $(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

.PHONY: planted
planted: $(VENV)/.native-built $(VENV)/.installed ## Plant faults into the product one by one, and simulate until each is found
	@exec $(BIN)/python -m tests.simulation.planted $(ARGS)

# Half an hour. For a part: make bench ARGS="--only reads mixed --rounds 3"
.PHONY: bench
bench: test-setup $(VENV)/.bench-installed .jars/rocketmq/.copied .jars/rocketmq-newest/.copied ## Measure next to the Java NameServer: throughput, latency, memory; writes bench/results.json
	@exec $(BIN)/python -m tests.bench $(ARGS)

# Half an hour, at low CPU priority: a month of 1,000 brokers in the history tables and the job's checkpoint.
.PHONY: bench-history
bench-history: test-setup ## A month of 1,000 brokers: sizes, file counts, cold opens. ARGS="--days 3" for less
	nice $(BIN)/python -m tests.bench.history_month_checkpoint
	exec nice $(BIN)/python -m tests.bench.history_month $(ARGS)

.PHONY: docs
docs: $(VENV)/.docs-installed ## Build the documentation as a site in build/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --clean --config-file conf/docs/mkdocs.yml $(ARGS)

##@ Maintain
.PHONY: fmt
fmt: $(VENV)/.installed ## Format, and fix what can be fixed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

.PHONY: lock
lock: $(VENV)/.installed ## Choose the newest package versions and write the lock files
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
		--extra dev --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--no-emit-options --output-file requirements.lock pyproject.toml
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
		--allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--no-emit-options --output-file tests/bench/requirements.lock tests/bench/requirements.in
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
		--allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--no-emit-options --output-file conf/audit/requirements.lock conf/audit/requirements.in
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
		--allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--no-emit-options --output-file conf/docs/requirements.lock conf/docs/requirements.in
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
		--constraint requirements.lock --build-deps-for editable --allow-unsafe --strip-extras --no-emit-index-url \
		--no-emit-trusted-host --no-emit-find-links --no-emit-options --output-file $(RUN_LOCK) pyproject.toml
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
		--unsafe-package playwright --unsafe-package greenlet --unsafe-package pyee \
		--strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--no-emit-options --output-file tests/extra/console/requirements.lock tests/extra/console/requirements.in
	env -u PIP_FIND_LINKS CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --generate-hashes \
		--allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
		--no-emit-options --output-file tests/extra/s3/requirements.lock tests/extra/s3/requirements.in

.PHONY: wheel
wheel: $(VENV)/.native-built ## Build dist/namesrv_stream-VERSION-*.whl for Python 3.11 and later on this kind of machine, with jobs/, conf/ and schemas/
	$(BIN)/python -m pip wheel --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

.PHONY: clean
clean: ## Remove caches and built files
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	find namesrv_stream tests $(wildcard jobs) -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Remove what `make setup` built as well; data/ stays
	rm -rf $(VENV) .jars

# Checks Maven only if jars are missing, because its version query takes a second.
.PHONY: prerequisites
prerequisites:
	@conf/check-prerequisites "$(PYTHON)" $(needs_maven)

.PHONY: jdk
jdk:
	@conf/check-prerequisites "$(PYTHON)" jdk $(needs_maven)

# Does not check Java: `make check` needs none.
$(VENV)/.run-installed: $(RUN_LOCK) pyproject.toml
	@if [ ! -x $(BIN)/python ]; then echo "setup: creating $(VENV) with $$($(PYTHON) -V)"; $(PYTHON) -m venv $(VENV); fi
	$(call step,installing Python packages,$(call install,$(VENV),$(RUN_LOCK)))
	$(call step,installing namesrv-stream,NATIVE_LANE=off $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .)
	@touch $@

$(VENV)/.installed: requirements.lock | $(VENV)/.run-installed
	$(call step,installing the developers' tools,$(call install,$(VENV),requirements.lock))
	@touch $@

# In a separate environment, to keep the audit's dependencies apart from the product's.
$(VENV)/.audit-installed: conf/audit/requirements.lock | $(VENV)/.run-installed
	$(BIN)/python -m venv $(VENV)/audit
	$(call step,installing pip-audit,$(call install,$(VENV)/audit,$<))
	@touch $@

# In a separate environment: only the site needs it.
$(VENV)/.docs-installed: conf/docs/requirements.lock | $(VENV)/.run-installed
	$(BIN)/python -m venv $(VENV)/docs
	$(call step,installing mkdocs-material,$(call install,$(VENV)/docs,$<))
	@touch $@

# A C compiler from a wheel, and a profiler.
$(VENV)/.bench-installed: tests/bench/requirements.lock | $(VENV)/.run-installed
	$(call step,installing a C compiler and a profiler,$(call install,$(VENV),$<))
	@touch $@

# Selenium, and axe-core from a wheel whose own dependencies are not needed.
$(VENV)/.console-installed: tests/extra/console/requirements.lock | $(VENV)/.installed
	$(call step,installing Selenium and axe-core,$(call install,$(VENV),$< --no-deps))
	@touch $@

# In a separate environment: it installs many AWS packages.
$(VENV)/.moto-installed: tests/extra/s3/requirements.lock | $(VENV)/.run-installed
	$(BIN)/python -m venv $(VENV)/moto
	$(call step,installing moto,$(call install,$(VENV)/moto,$<))
	@touch $@

# An installed C compiler, or the one from the wheel of the benchmarks.
.PHONY: compiler
compiler: $(VENV)/.run-installed
	@command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || $(MAKE) --no-print-directory $(VENV)/.bench-installed

# Removes earlier builds: setuptools would reuse them, whatever their options.
$(VENV)/.native-built: pyproject.toml $(wildcard namesrv_stream/server/native/*.[ch] namesrv_stream/server/native/build_library.py) | $(VENV)/.run-installed compiler
	@rm -rf build/lib.* build/temp.* namesrv_stream/server/native/*.so
	$(call step,compiling the native lane,CC="$$(command -v cc || command -v gcc || command -v clang || echo $(BIN)/python -m ziglang cc)" \
		$(BIN)/python -W ignore -c 'from setuptools import setup; setup()' --quiet build_ext --inplace && \
		$(BIN)/python -c 'from namesrv_stream.server.native.lane import load_library; assert load_library()')
	@touch $@

.jars/spark/.copied: conf/jars/pom.xml | prerequisites
	$(call step,fetching the jars of Spark's Kafka source and Delta,$(call copy_jars,.jars/spark,$<))
	@touch $@

.jars/kafka/.copied: conf/kafka/pom.xml | prerequisites
	$(call step,fetching the jars of Kafka,$(call copy_jars,.jars/kafka,$<))
	@touch $@

.jars/rocketmq/.copied: tests/e2e/pom.xml | prerequisites
	$(call step,fetching the jars of RocketMQ for the tests,$(call copy_jars,.jars/rocketmq,$<))
	@touch $@

.jars/rocketmq-newest/.copied: tests/bench/newest/pom.xml | prerequisites
	$(call step,fetching the jars of the newest Java name server for the benchmarks,$(call copy_jars,.jars/rocketmq-newest,$<))
	@touch $@

.jars/rocketmq4/.copied: tests/e2e/rocketmq4/pom.xml | prerequisites
	$(call step,fetching the jars of a RocketMQ 4.9 broker for the tests,$(call copy_jars,.jars/rocketmq4,$<))
	@touch $@

# With this archive, Spark starts in half of the processor time; without it, the tests take longer.
$(SPARK_CLASSES): .jars/spark/.copied .jars/kafka/.copied $(RUN_LOCK) | $(VENV)/.native-built $(VENV)/.installed
	@mkdir -p $(@D)
	$(call step,archiving the classes of Spark for the tests,$(BIN)/python -m tests.support.spark_classes &>$@.log || echo "setup: tests run without the archive; see $@.log")
