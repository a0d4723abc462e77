PYTHON ?= python3
VENV := .venv
# The tests of a file stay together: they share what is slow to bring up.
TWO := -n 2 --dist loadfile
BIN := $(VENV)/bin
# What reads, places, refers, keeps and analyses: tests that run in their own process.
QUICK := $(addprefix tests/test_,$(addsuffix .py,\
    units words files printed devices placement binding binding_launchers transcription \
    papers reference weak)) tests/test_captures.py $(wildcard tests/test_parse*.py)
BENCH := cd tests && ../$(BIN)/python -m bench

.PHONY: help run build check test test-cluster test-all packages cluster-packages lint docs golden inventories lock bench detection setup

help: ## this list: `make` alone prints it too
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "ARGS='...' are further options of the command: make run ARGS='--mode=smoke'"

run: setup ## measure this machine
	@$(BIN)/plumbline run $(ARGS)

build: setup ## build the other benchmarks for this machine with Spack: local:openmpi, local:mpich
	@$(BIN)/plumbline build $(or $(ARGS),local)

check: setup ## check style, layers, types and the parts that start no program: two minutes
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q $(TWO) $(QUICK) $(ARGS)

test: setup packages ## run the tests
	@$(BIN)/python -m pytest $(TWO) $(ARGS)

test-cluster: setup cluster-packages ## run those on a Slurm cluster of virtual nodes; needs root
	@$(BIN)/python -m pytest -m cluster $(ARGS)

test-all: setup packages cluster-packages ## both at once: what CI runs
	@$(BIN)/python -m pytest -m '' $(TWO) $(ARGS)

packages:
	@command -v slurmctld >/dev/null && command -v munged >/dev/null && command -v chromium >/dev/null || { \
	    test "$$(id -u)" = 0 && apt-get update -q && \
	    apt-get install -qy --no-install-recommends slurmctld munge numactl chromium; } || \
	    echo "plumbline: no slurmctld, munge or chromium: the tests that need them skip"

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

golden: setup ## write job scripts, inventories and the coverage page anew; review the change
	@ACCEPT_GOLDEN=1 $(BIN)/python -m pytest tests/test_golden.py tests/test_inventories.py tests/test_facility.py $(ARGS)

inventories: setup ## write the inventories alone anew: two minutes on an idle machine
	@ACCEPT_GOLDEN=1 $(BIN)/python -m pytest -q $(TWO) --dist load tests/test_inventories.py $(ARGS)

docs: setup ## render the generated pages, and build the docs as a site: docs/_site
	$(BIN)/python docs/_tools/pages.py docs
	$(BIN)/python docs/_tools/power.py docs/power.md
	$(BIN)/sphinx-build -nW --keep-going -q -b html docs docs/_site

lock: setup ## concretize every Spack environment anew: some forty minutes
	@$(BIN)/plumbline lock --page docs/environments.md $(ARGS)

bench: setup ## measure Plumbline itself: overhead, history, report, parsing, killed sessions
	@$(BENCH).harness $(ARGS)
	@$(BENCH).history $(ARGS)
	@$(BENCH).report $(ARGS)
	@$(BENCH).fuzz $(ARGS)
	@PLUMBLINE_KILLS=100 $(BIN)/python -m pytest -q -s tests/test_kill.py

detection: setup ## measure what trend, compare and screen find, and how often they are wrong: half an hour
	@$(BENCH).detection --write
	@$(BENCH).compare --write
	@$(BENCH).screen --write

setup: $(VENV)/complete ## make .venv with all that the commands need
	@$(BIN)/plumbline setup

# Renewed when the lock changes; one that was cut off has no mark and is made anew.
$(VENV)/complete: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "plumbline: $(PYTHON) does not run, or is older than 3.10: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    test "$$(id -u)" = 0 && apt-get update -q && apt-get install -qy python3-venv; } || { \
	    echo "plumbline: $(PYTHON) has no venv: apt-get install python3-venv" >&2; exit 2; }
	@echo "plumbline: setting up $(VENV): about a minute, more on a busy machine"
	@$(PYTHON) -m venv --clear $(VENV)
	@# pip prints a line or more for each package; a line for every tenth shows that it goes on.
	@bash -o pipefail -c '$(BIN)/python -m pip --disable-pip-version-check install --progress-bar off \
	    --require-hashes -r requirements.lock | awk \
	    "/^Collecting/ && ++n % 10 == 0 {print \"plumbline: \" n \" packages fetched\"; fflush()} \
	     /^Installing/ {print \"plumbline: unpacking them\"; fflush()}"'
	@$(BIN)/python -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e .
	@touch $@
