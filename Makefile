# Everything runs in ./.venv; nothing is installed outside this directory.
SHELL := /bin/bash
.DELETE_ON_ERROR:
# Else each worker, and each process that a test starts, compiles all modules anew: 20 processor seconds a worker.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: picture picture-of-verify help setup docs drill test test-all test-all-but-test test-long lanes check simulate bench bench-verify format clean

PYTHON ?=
BIN := .venv/bin
READY := .venv/.ready
DRILL_READY := .venv/.ready-drill
MADE_FROM := pyproject.toml deploy/make-environment $(wildcard protos/*)
SEEDS ?= 10000
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
ARGS ?=

help:
	@echo "make drill     migrate a throw-away cluster and watch it (ARGS='--partitions 200 ...')"
	@echo "make test      the tests for every change: 8 minutes on two idle cores"
	@echo "make test-all  those, and a real run of each family: 42 minutes"
	@echo "make test-long every matrix, procedure and seed; goes on where it was stopped, notes each case in docs/results"
	@echo "make lanes     minutes of each lane at the last two commits that were logged"
	@echo "make check     lint, types, import contracts, rules of the house, the audit of packages, the site"
	@echo "make docs      the site with a search, from docs/: build/site/index.html"
	@echo "make simulate  seeded consensus simulation (SEEDS=10000)"
	@echo "make bench     figures beside stock Kafka, same machine, same run"
	@echo "make bench-verify  how long and how big verify is, at 20,000 to 2,000,000 partitions"
	@echo "make setup     only install: the tool is then at .venv/bin/migrator"

setup: $(READY)

drill: $(DRILL_READY)
	$(BIN)/migrator drill $(ARGS)

picture: $(READY) $(DRILL_READY)  # docs/drill.svg, docs/drill-rollback.svg and docs/top.svg, of real runs
	$(BIN)/python -m tests.people.support.top_picture docs/top.svg
	directory=$$(mktemp -d) && $(BIN)/migrator drill --dir $$directory/drill && cp $$directory/drill/summary.svg docs/drill.svg
	directory=$$(mktemp -d) && $(BIN)/migrator drill --rollback-at DualWrite --dir $$directory/drill && cp $$directory/drill/summary.svg docs/drill-rollback.svg

picture-of-verify: $(READY)  # docs/verify.png, of made-up data; needs Chromium
	$(BIN)/python -m tests.verify.support.sample_pages

# Three lanes of tests; tests/lanes.py says which test runs where, docs/lanes.md how to choose.
# On two cores: a test of `test` waits for a third of its time, so that a third worker has a processor.
WORKERS = 2
test: WORKERS = 3
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(if $(LOG),--log-lane)

test: $(READY)
	$(PYTEST) --lane test $(ARGS)

test-all: test test-all-but-test

test-all-but-test: $(READY)
	$(PYTEST) --lane test-all $(ARGS)

test-long: $(READY)
	$(PYTEST) --lane test-long --log-cases -o timeout=7200 $(ARGS); result=$$?; \
	page=$$($(BIN)/python -m tests.compatibility) && echo "$$page" > docs/compatibility.md; exit $$result

lanes: $(READY)
	@$(BIN)/python -m tests.results

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.deploy.support.audit
	$(BIN)/python -m tests.rules
	$(SITE)

docs: $(READY)
	$(SITE)
	@echo "open build/site/index.html; '$(BIN)/mkdocs serve' shows what you change at once"

simulate: $(READY)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

bench: $(READY)
	$(BIN)/python -m tests.bench $(ARGS)

bench-verify: $(READY)
	$(BIN)/python -m tests.bench.verify $(ARGS)

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build *.egg-info migrator/rpc/stubs/*_pb2* .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): requirements.lock $(MADE_FROM)
	@deploy/make-environment all $(PYTHON)

$(DRILL_READY): deploy/drill.lock $(MADE_FROM)
	@deploy/make-environment drill $(PYTHON)
