# Everything a checkout needs is made here, in its own .venv; nothing needs root.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: setup run test lint bench clean
setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,stt]'
	touch $@

run: setup
	$(BIN)/vivavoce serve --agent script:examples/script.txt

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

bench: setup
	OMP_WAIT_POLICY=PASSIVE $(BIN)/vivavoce bench resample
	OMP_WAIT_POLICY=PASSIVE $(BIN)/vivavoce bench call
	OMP_WAIT_POLICY=PASSIVE $(BIN)/vivavoce bench words

clean:
	rm -rf $(VENV) build *.egg-info
