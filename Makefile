# Every target sets up what it needs: a virtual environment of its own, in .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-matrix lint bench docs screenshot clean

# Extras are installed when first needed; a stamp says which are there.
$(VENV)/.%: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@

demo: $(VENV)/.demo
	mkdir -p demo
	$(BIN)/dask-diag run --waits --force --output demo/qr.diag examples/qr.py
	$(BIN)/dask-diag report --force demo/qr.diag --output demo/report.html

# What another process spoilt on a busy machine is measured again; a test that fails thrice fails.
test: $(VENV)/.test
	$(BIN)/python -m pytest --reruns 2 --reruns-delay 1

# The oldest and the newest Python and dask that are supported, as far as the machine has them.
test-matrix:
	sh tests/matrix.sh

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.files
	$(BIN)/python -m benchmarks.exports
	$(BIN)/python -m benchmarks.sampling

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Makes the picture in the README from the demo's report; needs Chromium.
screenshot: demo $(VENV)/.test
	$(BIN)/python docs/screenshot.py demo/report.html docs/_static/report.png

clean:
	rm -rf $(VENV) .venv-* demo docs/_build docs/api/generated build dist *.egg-info
