# Everything a checkout needs is made here, in its own .venv; nothing needs root.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check install --progress-bar off

.PHONY: setup run test lint bench clean
setup: $(STAMP)

$(STAMP): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or later is needed, this is %d.%d; name another one: make setup PYTHON=python3.12" % sys.version_info[:2])'
	@echo "Setting up $(VENV); this takes some minutes the first time."
	$(PYTHON) -m venv $(VENV)
	$(PIP) 'setuptools>=77'
	$(PIP) --editable '.[dev,stt]'
	@touch $@

run: setup
	@echo "When it says that it is ready, call it from another terminal:"
	@echo "    $(BIN)/vivavoce phone 127.0.0.1 9092 --seconds 40 --out heard.wav"
	@$(BIN)/vivavoce serve --agent script:examples/script.txt

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

bench: export OMP_WAIT_POLICY := PASSIVE
bench: setup
	$(BIN)/vivavoce bench resample
	$(BIN)/vivavoce bench call
	$(BIN)/vivavoce bench words

clean:
	rm -rf $(VENV) build dist *.egg-info
