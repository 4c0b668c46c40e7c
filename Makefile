# Each target sets up all it needs: a machine with Python >= 3.11, make and a package index is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Many tests start processes of their own: with this set, each would compile the whole package anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test fuzz coverage mutants oldest check format bench pictures clean

help: ## show this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST)

demo: $(VENV)/.ready-demo ## ask an agent about a bundled project, with memory and without
	@$(BIN)/langmem-tiers demo

test: $(VENV)/.ready-dev $(VENV)/.ready-browser ## run all tests (SQLite, a real PostgreSQL, a real browser, faults, properties)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

fuzz: $(VENV)/.ready-dev $(VENV)/.ready-browser ## run all tests with examples that nobody has seen before
	$(BIN)/python -m pytest -n 2 --dist loadgroup --hypothesis-profile=random

coverage: $(VENV)/.ready-dev $(VENV)/.ready-browser ## report branch coverage (tests that measure time may fail)
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -n 2 --dist loadgroup
	-$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

mutants: $(VENV)/.ready-dev ## change the source in 300 places and check that tests notice
	$(BIN)/python -m tests.tools.mutants

oldest: ## run the adapters on the oldest frameworks and pydantic that they are made for, in .venv-oldest
	@$(PYTHON) -m venv .venv-oldest
	@.venv-oldest/bin/python -m pip --quiet install --upgrade 'pip>=25.1'
	@.venv-oldest/bin/python -m pip --quiet install --editable '.[classic,langchain,llama-index,metrics,postgres,redis,tracing]' --group dev 'langchain==1.3.0' 'langgraph==1.2.0' 'llama-index-core==0.14.24' 'pydantic<2.14'
	.venv-oldest/bin/python -m pytest -n 2 --dist loadgroup tests/integrations

check: $(VENV)/.ready-dev ## lint, formatting, types, layer contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.ready-dev ## mend what a tool can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-dev ## measure storing, analysing and a long conversation, beside baselines of the same run
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.analysis
	$(BIN)/python -m benchmarks.replay
	$(BIN)/python -m benchmarks.facts
	$(BIN)/python -m benchmarks.lasting
	$(BIN)/python -m benchmarks.loops
	$(BIN)/python -m benchmarks.agents

pictures: $(VENV)/.ready-dev $(VENV)/.ready-browser ## draw the pictures of the documentation anew
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
	@$(PIP) install --editable '.[all]' --group dev
	@touch $@ $(VENV)/.ready-demo

# The pages of the server are tested in a real browser. Set CHROMIUM to use one of your own.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable chrome
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -n)

$(VENV)/.ready-browser: $(VENV)/.ready-venv
	@for name in "$$CHROMIUM" $(BROWSERS); do \
	  test -n "$$name" && command -v "$$name" >/dev/null && touch $@ && exit 0; \
	done; \
	if command -v apt-get >/dev/null && $(SUDO) true 2>/dev/null; then \
	  echo "Installing Chromium for the tests of the pages (once) ..."; \
	  $(SUDO) apt-get -qq update && \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends --yes chromium >/dev/null && \
	  touch $@ && exit 0; \
	fi; \
	echo "No browser: install Chromium, or set CHROMIUM to the path of one, for the tests of the pages." >&2; \
	echo "Without it those tests fail, all others run." >&2
