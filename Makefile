PYTHON ?= python3
VENV := .venv
# Tests of one file stay together, since they share slow fixtures. tests/conftest.py runs the slowest
# files first, so that all workers are busy until the end. Three of them keep two cores busy, since
# sessions wait for jobs.
WORKERS := -n 3 --dist loadfile --no-loadscope-reorder
BIN := $(VENV)/bin
# The tests of the pure layers, which start no processes.
QUICK := $(addprefix tests/test_,$(addsuffix .py,\
    units text files printed devices placement proof binding binding_launchers transcription \
    papers parse parse_* reference_* weak_assertions))
# What is shipped is written in place, and not to a site's folder.
OURS := PLUMBLINE_SITE=$(CURDIR)
BENCH := cd tests && ../$(BIN)/python -m bench

.PHONY: help run build check test test-cluster test-all ground ground-all packages cluster-packages lint docs golden inventories lock bench detection constants setup

help: ## print this list, as `make` alone does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "ARGS='...' are further options of the command: make run ARGS='--mode=smoke'"

run: setup ## measure this machine
	@$(BIN)/plumbline run $(ARGS)

build: setup ## build the other benchmarks for this machine with Spack: local:openmpi, local:mpich
	@$(BIN)/plumbline build $(or $(ARGS),local)

check: setup ## check style, layers and types, and test the pure layers: two minutes
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q $(WORKERS) $(QUICK) $(ARGS)

test: setup packages ## run the tests
	@$(BIN)/python -m pytest $(WORKERS) $(ARGS)

test-cluster: setup cluster-packages ## run the tests on a Slurm cluster of virtual nodes; needs root
	@$(BIN)/python -m pytest -m cluster $(ARGS)

test-all: setup packages cluster-packages ## run all tests, as CI does
	@$(BIN)/python -m pytest -m 'not ground' $(WORKERS) $(ARGS)

ground: setup cluster-packages ## a small machine to play with, whose physics is known; needs root
	@cd tests && ../$(BIN)/python -m ground

ground-all: setup cluster-packages ## inject the whole list of faults into it: docs/proving-ground.md
	@cd tests && ../$(BIN)/python -m ground.faults $(ARGS)
	@test -n '$(ARGS)' || { cd tests && ../$(BIN)/python -m ground.bench; }
	@test -n '$(ARGS)' || $(BIN)/python -m pytest -q -m ground

packages:
	@command -v slurmctld munged chromium-headless-shell promtool prometheus-node-exporter | wc -l | grep -qx 5 || { \
	    test "$$(id -u)" = 0 && apt-get update -q && \
	    apt-get install -qy --no-install-recommends slurmctld munge numactl chromium-headless-shell \
	        prometheus prometheus-node-exporter; } || \
	    echo "plumbline: no slurmctld, munge, chromium or prometheus: the tests that need them skip"

cluster-packages: setup
	@lacking="$$($(BIN)/python tests/cluster.py)"; test -z "$$lacking" || { \
	    test "$$(id -u)" = 0 && apt-get update -q && \
	    apt-get install -qy --no-install-recommends $$lacking; } || \
	    echo "plumbline: not installed: $$lacking: the tests on a cluster skip"

lint: setup ## check style, layers, types, and systems, references and checks with each other
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy
	$(BIN)/plumbline lint

golden: setup ## rewrite the expected job scripts, inventories and coverage page; review the change
	@ACCEPT_GOLDEN=1 $(BIN)/python -m pytest tests/test_golden.py tests/test_inventories.py tests/test_facility.py $(ARGS)

inventories: setup ## rewrite only the inventories: two minutes on an idle machine
	@ACCEPT_GOLDEN=1 $(BIN)/python -m pytest -q $(WORKERS) --dist load tests/test_inventories.py $(ARGS)

docs: setup ## render the generated pages, and build the docs as a site: docs/_site
	$(BIN)/python docs/_tools/pages.py docs
	$(BIN)/python docs/_tools/power.py docs/power.md
	$(BIN)/python docs/_tools/pictures.py docs
	$(BIN)/sphinx-build -nW --keep-going -q -b html docs docs/_site
	$(BIN)/python docs/_tools/manual.py docs/_site/man/plumbline.1

lock: setup ## concretize all Spack environments again: about forty minutes
	@$(OURS) $(BIN)/plumbline lock $(ARGS)

bench: setup ## measure Plumbline itself: overhead, history, report, parsing, killed sessions
	@$(BENCH).harness $(ARGS)
	@$(BENCH).history $(ARGS)
	@$(BENCH).report $(ARGS)
	@$(BENCH).fuzz $(ARGS)
	@$(BENCH).questions $(ARGS)
	@PLUMBLINE_KILLS=100 $(BIN)/python -m pytest -q -s tests/test_kill.py

detection: setup ## measure detection and false alarms of trend, compare, screen and clear: an hour
	@$(BENCH).detection --write
	@$(BENCH).compare --write
	@$(BENCH).screen --write
	@$(BENCH).clear --write
	@$(BENCH).sweep --write

constants: setup ## measure what each constant of trend decides: ten minutes
	@$(BENCH).constants --write $(ARGS)

setup: $(VENV)/complete ## create .venv with all dependencies
	@$(BIN)/plumbline setup

# Created again when the lock changes, if it was interrupted and so has no mark, or if this folder
# was moved: its commands start the Python at the old place.
ifeq ($(shell grep -sF "$(CURDIR)/$(BIN)/python" $(BIN)/plumbline),)
  .PHONY: $(VENV)/complete
endif
$(VENV)/complete: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "plumbline: $(PYTHON) does not run, or is older than 3.10: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    test "$$(id -u)" = 0 && apt-get update -q && apt-get install -qy python3-venv; } || { \
	    echo "plumbline: $(PYTHON) has no venv: apt-get install python3-venv" >&2; exit 2; }
	@echo "plumbline: setting up $(VENV): about a minute, more on a busy machine"
	@$(PYTHON) -m venv --clear $(VENV)
	@# pip prints lines for each package; one line for every tenth package shows the progress.
	@bash -o pipefail -c '$(BIN)/python -m pip --disable-pip-version-check install --progress-bar off \
	    --require-hashes -r requirements.lock | awk \
	    "/^Collecting/ && ++n % 10 == 0 {print \"plumbline: \" n \" packages fetched\"; fflush()} \
	     /^Installing/ {print \"plumbline: unpacking them\"; fflush()}"' || { \
	    echo "plumbline: the packages cannot be installed; pip's lines above have the reason. If it cannot" \
	        "reach a package index: set https_proxy, or PIP_INDEX_URL to the index of your site" >&2; exit 2; }
	@$(BIN)/python -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e .
	@touch $@
