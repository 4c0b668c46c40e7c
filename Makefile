# Each target sets up all it needs: a machine with Python >= 3.11, make and a package index is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Tests start many processes. Without compiled modules, each of them would compile the whole package.
export PYTHONDONTWRITEBYTECODE :=
JOBS ?= 2
PYTEST := -m pytest -n $(JOBS) --dist loadgroup
FAST := smoke or not (fault or soak or backend or browser)
THOROUGH := --hypothesis-profile=thorough
# The tests that `make coverage` measures.
SUITE ?= -m "$(FAST)"

.DEFAULT_GOAL := help
.PHONY: help demo test test-all fuzz coverage mutants oldest check format bench pictures clean

help: ## show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(VENV)/.ready-demo ## ask an agent about a bundled project, with memory and without
	@$(BIN)/langmem-tiers demo

test: $(VENV)/.ready-dev $(VENV)/.ready-browser ## run the fast suite: all behavior, in at most 5 minutes
	$(BIN)/python $(PYTEST) -m "$(FAST)"

test-all: $(VENV)/.ready-dev $(VENV)/.ready-browser ## run every test: all databases, kills, races, notebooks, oldest frameworks
	$(BIN)/python $(PYTEST) $(THOROUGH)
	$(MAKE) oldest

fuzz: $(VENV)/.ready-dev ## run the property tests with new random examples
	$(BIN)/python $(PYTEST) -m hypothesis --hypothesis-profile=random

oldest: .venv-oldest/.ready ## run the adapter tests on the oldest supported frameworks
	.venv-oldest/bin/python $(PYTEST) -m "$(FAST)" tests/integrations

coverage: $(VENV)/.ready-dev $(VENV)/.ready-browser ## measure the branch coverage of the fast suite, or of SUITE
	$(BIN)/coverage erase
	$(BIN)/coverage run $(PYTEST) $(SUITE)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

mutants: $(VENV)/.ready-dev $(VENV)/.ready-browser ## change the source in 300 places and check that the fast suite notices
	$(BIN)/python -m tests.tools.mutants

check: $(VENV)/.ready-dev ## lint, formatting, types, layer contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready-dev ## apply automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-dev ## measure speed and quality next to baselines of the same run
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.analysis
	$(BIN)/python -m benchmarks.replay
	$(BIN)/python -m benchmarks.facts
	$(BIN)/python -m benchmarks.long_term
	$(BIN)/python -m benchmarks.loops
	$(BIN)/python -m benchmarks.agents
	$(BIN)/python -m benchmarks.growth

pictures: $(VENV)/.ready-dev $(VENV)/.ready-browser ## regenerate the screenshots of the documentation
	$(BIN)/python -m benchmarks.pictures

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .venv-oldest .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage .coverage.* .mutants

$(VENV)/.ready-venv:
	@$(PYTHON) -c 'import sys; sys.exit("Python >= 3.11 is needed, this is " + sys.version.split()[0] + ": run make PYTHON=python3.11 ..." if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) ..."
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.ready-demo: $(VENV)/.ready-venv pyproject.toml
	@echo "Installing langmem-tiers with LangChain (once) ..."
	@$(PIP) install --editable '.[langchain]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready-venv pyproject.toml
	@echo "Installing langmem-tiers with extras and test tools (once, a minute or two) ..."
	@start=$$(date +%s); $(PIP) install --editable '.[all]' --group dev && \
	  echo "Installed in $$(( $$(date +%s) - start )) s."
	@touch $@ $(VENV)/.ready-demo

.venv-oldest/.ready: pyproject.toml
	@echo "Installing the oldest supported frameworks into .venv-oldest (once) ..."
	@$(PYTHON) -m venv --clear .venv-oldest
	@.venv-oldest/bin/python -m pip --quiet install --upgrade 'pip>=25.1'
	@.venv-oldest/bin/python -m pip --quiet install --group dev 'langchain==1.3.0' 'langgraph==1.2.0' \
	  'llama-index-core==0.14.24' 'pydantic<2.14' --editable '.[classic,langchain,llama-index,metrics,postgres,redis,tracing]'
	@touch $@

# The inspector is tested in a real browser. Set CHROMIUM to use another one.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable chrome
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -n)

$(VENV)/.ready-browser: $(VENV)/.ready-venv
	@for name in "$$CHROMIUM" $(BROWSERS); do \
	  test -n "$$name" && command -v "$$name" >/dev/null && touch $@ && exit 0; \
	done; \
	if command -v apt-get >/dev/null && $(SUDO) true 2>/dev/null; then \
	  echo "Installing Chromium for the inspector tests (once) ..."; \
	  $(SUDO) apt-get -qq update && \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends --yes chromium >/dev/null && \
	  touch $@ && exit 0; \
	fi; \
	echo "Chromium not found. Install it, or set CHROMIUM to the path of a browser." >&2; \
	echo "Without a browser the inspector tests fail; all others run." >&2
