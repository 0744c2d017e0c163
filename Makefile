# Everything runs from a fresh clone with only Python 3.11 and make: each target builds .venv first.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo films test test-all coverage lint format clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# Three stamps, so that the demo does not wait for the linters.
$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.demo: $(VENV)/.core
	$(PIP) -e '.[dmc]'
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[dev]'
	touch $@

demo: $(VENV)/.demo  ## pretrain on the donut, prompt, adapt, roll out, film; writes runs/demo/
	$(BIN)/zol demo

films: $(VENV)/.demo  ## make the README's moving picture again, with the zoo's models of today
	$(BIN)/zol gallery --out docs/images/behaviours.webp

lint: $(VENV)/.dev  ## ruff, mypy, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint  ## lint, then every test that fits in ten minutes on two cores
	$(BIN)/pytest -m "not slow"

test-all: lint  ## the long checks too
	$(BIN)/pytest

coverage: $(VENV)/.dev  ## which lines the tests of make test reach; writes runs/coverage/ and docs/coverage.md
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not slow"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet -d runs/coverage/html
	$(BIN)/coverage json --quiet -o runs/coverage/coverage.json
	$(BIN)/python tests/coverage_page.py runs/coverage/coverage.json docs

format: $(VENV)/.dev  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and caches (never runs/)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build src/*.egg-info
