# Every target sets up what it needs: a virtual environment of its own, in .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Tests and benchmarks start many processes: each would compile the package.
export PYTHONDONTWRITEBYTECODE =

# What needs node is left out on a machine without it.
NODE := $(shell command -v node 2>/dev/null)
AXE := $(if $(NODE),node_modules/.package-lock.json)

.PHONY: demo check test test-dask test-browser test-truth truth test-all test-matrix lint lint-js mutate bench docs dist test-dist gallery screenshot clean

# Extras are installed when first needed; a stamp says which are there. Little of what is
# installed is imported, and that compiles it, once.
$(VENV)/.%: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$*]"
	touch $@

demo: $(VENV)/.demo
	mkdir -p demo
	$(BIN)/dask-diag run --waits --force --output demo/qr.diag examples/qr.py
	$(BIN)/dask-diag report --force demo/qr.diag --html demo/report.html

# Before each commit.
check: lint test

# All but truths and browsers: minutes, on two cores. Many tests wait, so four run at a time.
test: $(VENV)/.test
	sh tests/run.sh $(BIN)/python -n 4 --dist worksteal -m "not truth and not browser and not diagnosis"

# The rules of accessibility are axe-core's, which needs node; without it those tests say so. Cells run
# in a JupyterLab, which no other test needs.
test-browser: $(VENV)/.browser $(AXE)
	sh tests/run.sh $(BIN)/python -n 2 --dist loadfile -m "browser and not truth"

# dask's own tests with all profilers registered: none may fail that passes with dask's profilers.
test-dask: $(VENV)/.test
	$(BIN)/python -m tests.dask_suite

# What is measured in real time has the machine to itself: one test at a time, and nothing beside.
test-truth: $(VENV)/.test
	sh tests/run.sh $(BIN)/python -m truth

# How right are the findings: programs with a known cause each, with and without its remedy.
# Minutes, on quiet processors; writes the page of the documentation.
truth: $(VENV)/.test
	$(BIN)/python -m tests.diagnosis

# One after the other, also with make -j.
test-all: test
	$(MAKE) test-dask
	$(MAKE) test-browser
	$(MAKE) test-truth

# Pairs of Python and dask that are supported, of the Pythons that the machine has.
test-matrix:
	sh tests/matrix.sh

lint: $(VENV)/.lint lint-js
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The scripts in pages. A machine without node may do without, but not the one that decides.
ifneq ($(NODE),)
lint-js: node_modules/.package-lock.json
	node_modules/.bin/eslint dask_diag eslint.config.js
	find dask_diag -name '*.js' -exec sh -c 'for f; do node --check "$$f" || exit 1; done' sh {} +
else ifeq ($(CI),true)
lint-js:
	@echo "lint-js: no node is installed (apt-get install nodejs npm), and CI is true" >&2; exit 1
else
lint-js:
	@echo "lint-js: skipped, no node is installed (apt-get install nodejs npm)"
endif

node_modules/.package-lock.json: package.json package-lock.json
	npm ci --no-audit --no-fund
	touch $@

# Changes to the code that no test notices: of a file, make mutate FILE=dask_diag/analysis/waits.py;
# else a tenth of all, those whose number ends in DIGIT, for as long as MUTATE_FOR. All take hours.
DIGIT ?= 7
MUTATE_FOR ?= 40m
mutate: $(VENV)/.mutate
	timeout --signal=INT $(MUTATE_FOR) $(BIN)/mutmut run $(if $(FILE),"$(subst /,.,$(FILE:.py=)).*","*__mutmut_*$(DIGIT)") || test $$? = 124
	$(BIN)/mutmut results | sed '/: not checked/d'

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.files
	$(BIN)/python -m benchmarks.exports
	$(BIN)/python -m benchmarks.pages
	$(BIN)/python -m benchmarks.sampling
	$(BIN)/python -m benchmarks.simulate
	$(BIN)/python -m benchmarks.real
	$(BIN)/python -m benchmarks.hooks
	$(BIN)/python -m benchmarks.switched
	$(BIN)/python -m benchmarks.live
	$(BIN)/python -m benchmarks.cluster

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# The package as source and as wheel, in dist/.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist > dist.log || { cat dist.log; exit 1; }
	rm dist.log
	ls -l dist

# Installs the wheel in bare environments, oldest and newest Python, and runs the demo from it.
test-dist: dist
	sh tests/wheel.sh

# Runs the stories of the documentation, measures what their changes gain, and writes their pages;
# minutes, on quiet processors, and needs Chromium.
gallery: $(VENV)/.gallery
	mkdir -p docs/_build
	$(BIN)/python -m docs.gallery
	$(BIN)/dask-diag report --force docs/stories/climatology.diag --html docs/_build/climatology.html
	$(BIN)/python docs/screenshot.py docs/_build/climatology.html docs/_static/reading.png --numbers

# Makes the pictures in the README and the documentation; needs Chromium.
screenshot: demo $(VENV)/.browser
	$(BIN)/python docs/screenshot.py demo/report.html docs/_static/report.png
	$(BIN)/python docs/screenshot.py demo/report.html docs/_static/report_dark.png --dark
	$(BIN)/python -m docs.notebook_screenshot
	$(BIN)/python docs/live_screenshot.py docs/_static/live.png docs/_static/top.svg docs/_static/run.svg

clean:
	rm -rf $(VENV) .venv-* node_modules mutants demo docs/_build docs/api/generated build dist *.egg-info
