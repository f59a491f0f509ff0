# Sets up the checkout in .venv, runs and tests it; nothing needs root.
# `make test EXTRAS=dev,stt,pipecat,cosyvoice` also runs the tests that need those extras.
PYTHON ?= python3
EXTRAS ?= dev,stt
comma  := ,
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
PIP    := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check install --progress-bar off

PART_BENCH := PYTHONPATH=tests $(BIN)/python -m benches

.PHONY: setup run test test-pipecat-oldest test-pipecat-client lint bench check-golden clean
setup: $(STAMP)

$(STAMP): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or later is needed, this is %d.%d; name another one: make setup PYTHON=python3.12" % sys.version_info[:2])'
	@echo "Setting up $(VENV); this takes some minutes the first time."
	$(PYTHON) -m venv $(VENV)
	$(PIP) 'setuptools>=77'
	$(PIP) --editable '.[$(EXTRAS)]'
	@touch $@

run: setup
	@echo "When the server is ready, open http://127.0.0.1:8080 and press Call, or call it from another terminal:"
	@echo "    $(BIN)/vivavoce phone 127.0.0.1 9092 --seconds 40 --out heard.wav"
	@$(BIN)/vivavoce serve --agent script:examples/script.txt

test: setup
	$(BIN)/python -m pytest

# Needs EXTRAS with stt and pipecat.
test-pipecat-oldest: setup
	tests/peers/pipecat_oldest.sh

# Needs npm and chromium.
test-pipecat-client: setup
	tests/peers/pipecat_client.sh

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

# The operator's bench of calls, then developers' benches of single parts.
bench: export OMP_WAIT_POLICY := PASSIVE
bench: setup
	$(BIN)/vivavoce bench call
	$(PART_BENCH) resample
	$(PART_BENCH) words
	@if $(BIN)/python -c 'import sys; sys.path.insert(0, "tests"); from shared import chromium as c; sys.exit(c.find_chromium() is None)'; \
		then echo $(PART_BENCH) webrtc; $(PART_BENCH) webrtc; \
		else echo 'Skipped: benches webrtc needs Chromium (apt-get install chromium)'; fi
	@if $(BIN)/python -c 'import sys; from importlib.util import find_spec; sys.exit(find_spec("pipecat") is None)'; \
		then echo $(PART_BENCH) pipecat; $(PART_BENCH) pipecat; \
		else echo 'Skipped: benches pipecat needs Pipecat (make bench EXTRAS=dev,stt,pipecat)'; fi

# The reference vectors of the CosyVoice networks; DATA names another folder of the same layout.
DATA ?= tests/golden/data
check-golden: setup
	PYTHONPATH=tests $(BIN)/python -m golden $(DATA)

clean:
	rm -rf $(VENV) $(VENV)-* build dist *.egg-info
