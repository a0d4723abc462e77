# make run    measure this machine          ARGS='--mode=smoke' and other ReFrame options
# make build  build the other benchmarks for this machine with Spack: local:openmpi, local:mpich
# make check  style, layers, and the tests of the layers that start no program: two minutes
# make test   pass the tests
# make test-cluster   and those on a Slurm cluster of virtual nodes, which wants root
# make test-all   both at once: what CI calls
# make lint   style, and systems, references and checks against each other
# make docs   the pages that are rendered from the reference tables, and the docs as a site: docs/_site
# make lock   every Spack environment concretized anew: some forty minutes
# make bench  what the harness itself costs, how quickly the history answers and a report is made,
#             a million damaged outputs parsed, and 100 sessions killed
# make detection  what trend, compare and screen find, and how often they are wrong: some half an hour
# make golden job scripts and inventories of every system, and the page of what is asserted, written anew
# make inventories   the inventories alone: two minutes where nothing else runs
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

.PHONY: run build check test test-cluster test-all packages cluster-packages lint docs golden inventories lock bench detection setup

run: setup
	@$(BIN)/plumbline run $(ARGS)

build: setup
	@$(BIN)/plumbline build $(or $(ARGS),local)

check: setup
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/lint-imports --no-cache --no-logo
	@$(BIN)/python -m pytest -q $(TWO) $(QUICK) $(ARGS)

test: setup packages
	@$(BIN)/python -m pytest $(TWO) $(ARGS)

test-cluster: setup cluster-packages
	@$(BIN)/python -m pytest -m cluster $(ARGS)

test-all: setup packages cluster-packages
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

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/plumbline lint

# What is looked at in review before it is taken: job scripts, and the page of what is asserted.
golden: setup
	@ACCEPT_GOLDEN=1 $(BIN)/python -m pytest tests/test_golden.py tests/test_inventories.py tests/test_facility.py $(ARGS)

# What every system is expected to run and assert: a change is looked at in review.
inventories: setup
	@ACCEPT_GOLDEN=1 $(BIN)/python -m pytest -q $(TWO) --dist load tests/test_inventories.py $(ARGS)

docs: setup
	$(BIN)/python docs/_tools/pages.py docs
	$(BIN)/python docs/_tools/power.py docs/power.md
	$(BIN)/sphinx-build -nW --keep-going -q -b html docs docs/_site

lock: setup
	@$(BIN)/plumbline lock --page docs/environments.md $(ARGS)

bench: setup
	@$(BENCH).harness $(ARGS)
	@$(BENCH).history $(ARGS)
	@$(BENCH).report $(ARGS)
	@$(BENCH).fuzz $(ARGS)
	@PLUMBLINE_KILLS=100 $(BIN)/python -m pytest -q -s tests/test_kill.py

detection: setup
	@$(BENCH).detection --write
	@$(BENCH).compare --write
	@$(BENCH).screen --write

setup: $(VENV)/complete
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
