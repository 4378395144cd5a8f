# `make demo` teaches an agent, `make teach` lets you teach one; `make test` checks everything.
# All of them set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed

.PHONY: setup demo teach page test test-slow check bench lock clean

setup: $(SETUP)

$(SETUP): requirements.lock pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit("rl-teacher needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Say which: make PYTHON=python3.12 setup" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(SETUP)

demo: $(SETUP)
	$(BIN)/rl-teacher teach -p synth -e ShortHopper-v1 -l 300 -t 800000 -n demo --serve

teach: $(SETUP)
	$(BIN)/rl-teacher teach -p human -e ShortHopper-v1 -l 200 -L 25 -n mine

page: $(SETUP)
	$(BIN)/python -c 'from pathlib import Path; import hatch_build; hatch_build.build(Path("."))'

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(SETUP)
	$(BIN)/python -m pytest -m slow

bench: $(SETUP)
	$(BIN)/python -m benchmarks.run

# The versions that were tested together, written anew from what .venv holds.
lock:
	$(BIN)/python -m pip freeze --exclude-editable > requirements.lock

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
