# Everything runs from a fresh clone with only Python 3.11 and make: each target builds .venv first.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests that limit the size of files, which holds for coverage's own, too.
LIMITED := tests/contract/test_bench_store_damage.py::test_no_room_for_results \
	tests/contract/test_dataset_kill.py::test_full_disk_keeps_what_was_written \
	tests/contract/test_training_kill.py::test_a_file_that_grows_too_large_for_the_system

# Two processes; whoever has finished takes over what the other has not begun. Tests of a file stay together as far
# as that allows, because they share what they have trained.
TOGETHER := -n 2 --dist worksteal

.PHONY: demo films play-picture test test-all coverage docs package lint format clean help

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

films: $(VENV)/.demo  ## make the moving pictures of README and zoo page again, with the zoo's models of today
	$(BIN)/zol gallery --out docs/images/behaviours.webp
	$(BIN)/zol gallery --zoo --method plain --episodes 20 --seconds 8 --out docs/images

play-picture: $(VENV)/.dev  ## make the picture of zol play again; needs Chromium (apt-get install chromium)
	$(BIN)/python docs/play_picture.py docs/images/play.png

lint: $(VENV)/.dev  ## ruff, mypy, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint  ## lint, then every test that fits in ten minutes on two cores
	$(BIN)/pytest $(TOGETHER) -m "not slow"

test-all: lint  ## the long checks too
	$(BIN)/pytest $(TOGETHER)

coverage: $(VENV)/.dev  ## which lines the tests of make test reach; writes runs/coverage/ and docs/coverage.md
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not slow" $(LIMITED:%=--deselect %)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet -d runs/coverage/html
	$(BIN)/coverage json --quiet -o runs/coverage/coverage.json
	$(BIN)/python tests/coverage_page.py runs/coverage/coverage.json docs

docs: $(VENV)/.core  ## the documentation site, in build/site; a broken link fails
	$(PIP) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict    # python -m http.server -d build/site shows it, search included

package: $(VENV)/.dev  ## wheel and sdist in dist/, and whether the wheel works in an empty environment
	rm -rf dist build/package
	$(BIN)/python -m build --quiet --outdir dist .
	test $$(stat -c %s dist/*.whl) -lt 40000000
	$(PYTHON) -m venv build/package
	build/package/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build/package && bin/zol --version && bin/zol zoo list && bin/zol worlds show donut >/dev/null
	cd build/package && bin/zol demo --out demo --steps 60 --hidden 16 --transitions 5000 --episodes 6 --z-dim 8 \
		--batch-size 32 >/dev/null && test -s demo/index.html
	! build/package/bin/zol worlds show walker    # one sentence that names the extra, no traceback

format: $(VENV)/.dev  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and caches (never runs/)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build src/*.egg-info
