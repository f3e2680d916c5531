# What a newcomer types: `make demo`, `make test`. Everything happens in .venv; a second run installs nothing.
# Needs python3 (3.11 or newer, with its venv module) and make.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
# Tests wait more than they compute: one worker more than there are cores keeps these busy.
WORKERS ?= $(shell expr `nproc 2>/dev/null || echo 2` + 1)
WORKERS ?= 2
EXTRAS := postgres plots tui kubernetes ray otel
COMPILE := CUSTOM_COMPILE_COMMAND="make lock" PIP_FIND_LINKS= $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras
.DEFAULT_GOAL := help

.PHONY: help
help: ## list what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 16

# --- the environment: core for users, dev on top for tests -----------------------------------------------------------------
.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Shoal needs Python 3.11 or newer; \
	`$(PYTHON) --version 2>&1` was found. Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing. On Debian and Ubuntu: \
	apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/core: .venv/made requirements/core.txt requirements/build.txt pyproject.toml
	$(PIP) --require-hashes -r requirements/build.txt -r requirements/core.txt
	$(PIP) --no-deps --no-build-isolation --no-index -e .
	@$(BIN)/python -m compileall -q src # else every process compiles it again where bytecode is not written
	@touch $@

.venv/dev: .venv/core requirements/dev.txt
	$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

.PHONY: install
install: .venv/core ## .venv with Shoal in it

.PHONY: dev
dev: .venv/dev ## .venv with what tests and checks need too

# --- see it, check it ---------------------------------------------------------------------------------------------------------
.PHONY: demo
demo: .venv/core ## a gang of real processes on two pretended nodes (STAY=1 keeps it up)
	@$(BIN)/python tools/demo.py $(if $(STAY),--stay)

.PHONY: test
test: .venv/dev ## all tests; says what it left out
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

.PHONY: check
check: .venv/dev ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# --- figures; the last line of each is JSON -----------------------------------------------------------------------------------
.PHONY: settle-long
settle-long: .venv/dev ## 10,000 random worlds in which preemption must come to rest; CI plays 300
	SETTLE_WORLDS=10000 $(BIN)/python -m pytest -q -x -n $(WORKERS) tests/property/test_settles.py $(ARGS)

SEEDS ?= 100
.PHONY: swarm
swarm: .venv/dev ## the whole plane on virtual time: lives full of faults, one per seed (SEEDS=5000)
	$(BIN)/python -m shoal.sim.swarm --seeds $(SEEDS) --workers $(WORKERS) $(ARGS)
.PHONY: swarm-mutants
swarm-mutants: .venv/dev ## known bugs, planted one at a time: the swarm must find each within 500 seeds
	$(BIN)/python tests/simulation/swarm_mutants.py --workers $(WORKERS) $(ARGS)

.PHONY: bench-submit bench-e2e bench-cycle bench-start bench-verdict bench-kueue bench-swf bench-openb bench-packing
bench-submit: .venv/dev ## durable creates over HTTP
	$(BIN)/python bench/submit.py $(ARGS)
bench-e2e: .venv/dev ## 1,000 jobs from submit to end, in turn with a real Slurm
	$(BIN)/python bench/e2e.py $(ARGS)
bench-cycle: .venv/dev ## the scheduling cycle alone
	$(BIN)/python bench/cycle.py $(ARGS)
bench-start: .venv/dev ## how fast commands and `shoal up` are there
	$(BIN)/python bench/start.py $(ARGS)
bench-verdict: .venv/dev ## a hard "no", a large reclaim, a backfill of 10,000
	$(BIN)/python bench/verdict.py $(ARGS)
bench-kueue: .venv/dev ## Kueue's load generators in real time through the control plane's use cases
	$(BIN)/python bench/kueue.py $(ARGS)
bench-swf: .venv/dev ## a generated log replayed on virtual time
	$(BIN)/python bench/swf.py $(ARGS)
bench-openb: .venv/dev ## how much of a fleet each packing policy fills, against published figures (10 min)
	$(BIN)/python bench/openb.py $(ARGS)
bench-packing: .venv/dev ## GPU time served by each packing policy where tasks leave, with MIG and racks (30 min)
	$(BIN)/python bench/packing_churn.py $(ARGS)

# --- what is written by programs ----------------------------------------------------------------------------------------------
.PHONY: docs
docs: .venv/dev ## pages of docs/reference that are printed from code
	$(BIN)/python tools/docs.py

.PHONY: lock
lock: .venv/dev ## requirements/*.txt from pyproject.toml
	$(COMPILE) $(ARGS) --only-build-deps --all-build-deps -o requirements/build.txt pyproject.toml
	$(COMPILE) $(ARGS) -o requirements/core.txt pyproject.toml
	for extra in $(EXTRAS) dev; do \
		$(COMPILE) $(ARGS) --extra $$extra -c requirements/core.txt -o requirements/$$extra.txt pyproject.toml || exit 1; \
	done

.PHONY: clean
clean: ## what was made here, except .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
	find src -name '*.egg-info' -prune -exec rm -rf {} +
	find src \( -name .mypy_cache -o -name .ruff_cache \) -prune -exec rm -rf {} +
