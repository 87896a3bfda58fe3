# The only entry points: make help lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first of these that is installed; PYTHON=/path/to/python3.13 make install takes another.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name))))
BIN := .venv/bin
UV := $(shell command -v uv)
INSTALLED := .venv/.installed
comma := ,
# mypy takes a folder without Python files for a mistake.
CODE := $(foreach folder,plugins stack tests dags spark_jobs benchmarks,$(if $(shell find $(folder) -name '*.py' -print -quit 2>&1 | grep py$$),$(folder)))

.PHONY: docs pictures help install browser dist up down status env topic demo demo-sinks drill quick test test-all matrix faults lint lint-style lint-types lint-imports format bench lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## make .venv with exactly what requirements.lock names, and this package in it

.venv/bin/python:
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo 'make: no Python 3.11, 3.12 or 3.13 found: install one, or say PYTHON=/path/to/python' >&2; exit 1; }
	"$(PYTHON)" -m venv .venv

# With uv in seconds, with pip alone in a few minutes; both check every hash.
$(INSTALLED): requirements.lock pyproject.toml | .venv/bin/python
ifneq ($(UV),)
	@$(BIN)/python stack/installing.py "$(UV)" pip install --python .venv/bin/python --require-hashes -r requirements.lock
	"$(UV)" pip install --quiet --python .venv/bin/python --no-deps -e .
else
	@$(BIN)/python stack/installing.py $(BIN)/python -m pip install --progress-bar off --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
endif
	@# Not every installer compiles, and a start of Airflow or Spark is three times as long without.
	@$(BIN)/python -m compileall -q -j 0 .venv/lib || true
	@# Without it Spark starts as well, only more slowly.
	@nice $(BIN)/python -m kafka_replication.spark.training || true
	@touch $@

up: install ## start two Kafka clusters and Airflow on this machine
	@$(BIN)/python -m stack up

down: install ## stop what make up started; the data stays
	@$(BIN)/python -m stack down

status: install ## say what of it runs, and where
	@$(BIN)/python -m stack status

env: install ## print what a terminal needs for the stack: eval "$(make -s env)"
	@$(BIN)/python -m stack env

topic: install ## make a topic on the stack's source: make topic NAME=shop.orders PARTITIONS=3
	@$(BIN)/python -m stack topic "$(NAME)" --partitions $(or $(PARTITIONS),1)

demo: install ## replicate a topic between two real clusters and show what happened
	@$(BIN)/python -m stack demo

demo-sinks: install ## copy topics to OpenSearch and to HBase, and compare them with the source
	@$(BIN)/python -m stack demo-sinks

drill: install ## turn a replication around between two real clusters under load, and count; SEED=n, TIMES=n
	@$(BIN)/python -m stack.drill --seed $(or $(SEED),0) --times $(or $(TIMES),1)

# More than half of a test is waiting, so five tests run at a time on two processors. The tools of make lint are tests too (tests/lint),
# so that they run beside the others. Which tests stay together, and in which order, tests/conftest.py says.
# Five processes and all that they start would compile the same files again and again where Python is told to write none.
# Thousands of small databases and logs: each commit of one asks the disk. In memory, where there are 8 GB for them.
MEMORY := $(shell df -k --output=avail /dev/shm 2> /dev/null | awk 'NR == 2 && $$1 > 8000000 { print "TMPDIR=/dev/shm" }')
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(MEMORY) $(BIN)/python -m pytest -n 5 --dist loadgroup --no-loadscope-reorder
QUICK := tests/lint tests/unit tests/contract tests/dags
quick: install ## lint, and the tests that need neither Kafka nor Spark: under 3 minutes
	@$(PYTEST) -m 'not slow and not servers' $(QUICK)

# The tests of the page drive a real browser. Where it cannot be installed they say why they were left out.
browser:
	@command -v chromedriver > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
		{ apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium chromium-driver; } \
		> /dev/null 2>&1; } || true

test: install browser ## lint, and all tests but the slow ones: what has to pass
	@$(PYTEST) -m 'not slow'

test-all: install browser ## lint, and all tests
	@$(PYTEST) --hypothesis-profile=thorough

# What touches brokers. Each turn has the source's version and that of the others.
MATRIX := $(addprefix tests/contract/,engine ledger sink transaction) \
	$(patsubst %,tests/integration/test_%.py,copy kill transactions refusals backfill audit gaps reset rebuild auto_create unclean_election \
	whole_batches unreadable lost_target_end lost_target_end_during groups adopt followed_settings)
SEARCH := tests/contract/test_opensearch.py $(patsubst %,tests/integration/test_%.py,opensearch opensearch_check opensearch_logins other_targets latest)
# What depends on the client's codes and texts, with the oldest and the newest confluent-kafka that pyproject.toml allows.
CLIENT := $(patsubst %,tests/unit/test_%.py,connect_diagnosis unusable_settings kafka_translate kafka_transactions client_logs) \
	$(patsubst %,tests/integration/test_%.py,admission logins unreachable rights transactions truncated_source unreadable lost_answers)
matrix: install ## the tests that touch brokers, with Kafka 3.9.1 as source, as target, and as both, with 2.8.2 as source and as target, and with the oldest and the newest client; those of OpenSearch, with Elasticsearch 7
	@$(foreach versions,3.9.1$(comma)4.3.1 4.3.1$(comma)3.9.1 3.9.1$(comma)3.9.1 2.8.2$(comma)4.3.1 4.3.1$(comma)2.8.2,echo 'Kafka $(versions)'; \
		KAFKA_REPLICATION_TEST_KAFKA=$(versions) $(PYTEST) $(MATRIX);)
	@echo 'what Kafka 2.8.2 leaves behind'; $(PYTEST) tests/integration/test_old_brokers.py
	@$(foreach end,lowest highest,"$(or $(UV),$(BIN)/uv)" pip install --quiet --python .venv/bin/python --no-deps --upgrade \
		--resolution $(end) --target .state/client-$(end) "$$(sed -n 's/^ *"\(confluent-kafka[^"]*\)",/\1/p' pyproject.toml)"; \
		export PYTHONPATH=$(CURDIR)/.state/client-$(end); $(BIN)/python -c 'import confluent_kafka as it; print("client", it.__version__)'; \
		$(PYTEST) -m 'not slow' $(CLIENT); unset PYTHONPATH;)
	@echo 'Elasticsearch 7'; KAFKA_REPLICATION_TEST_SEARCH=elasticsearch $(PYTEST) -k opensearch $(SEARCH)

faults: install ## fault injection: kills, network cuts, damaged data; FAULT_RUNS=n a row, FAULT_ONLY=row, FAULT_SEED=n, FAULT_MINUTES=n, FAULT_PROFILE=name
	@$(BIN)/python -m tests.faults

lint: lint-style lint-types lint-imports ## ruff, mypy --strict, import rules

lint-style: install
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)

lint-types: install
	@$(BIN)/mypy $(CODE)

lint-imports: install
	@$(BIN)/lint-imports

format: install ## let ruff rewrite the code
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

bench: install ## print the tables of benchmarks/results; BENCH_ONLY=table,..., REPEATS=n, SCALE=0.02 to try it
	@$(BIN)/python -m benchmarks

docs: install ## build docs/ as a site with a search, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'To look at it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000'

pictures: install browser ## make the pictures of the README and of docs/ anew, from real runs
	@PICTURES=docs/pictures $(PYTEST) -n 0 tests/e2e/test_pictures.py

# Both files together: what the tests need must fit what runs. Indexes and wheel folders of this machine stay out of the result.
lock: install ## resolve requirements*.txt anew into requirements.lock
	@env -u PIP_FIND_LINKS -u UV_FIND_LINKS $(or $(UV),$(BIN)/uv) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links requirements.txt requirements-dev.txt -o requirements.lock

dist: install ## build the wheel and the source distribution into dist/
	@rm -rf dist
	@$(or $(UV),$(BIN)/uv) build --quiet --out-dir dist
	@ls dist/*

clean: ## stop the stack, then delete everything that can be made again
	@[ ! -x $(BIN)/python ] || $(BIN)/python -m stack down
	rm -rf .state .venv build dist plugins/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
