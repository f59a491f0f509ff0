# Sets up the checkout in .venv, runs and tests it; nothing needs root. `make` lists the targets.
PYTHON ?= python3
# Extras of pyproject.toml to install, separated by commas. Targets that test or measure use TEST_EXTRAS.
EXTRAS ?=
comma  := ,
TEST_EXTRAS := $(or $(EXTRAS),dev$(comma)stt)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install
# Options of `vivavoce serve` for `make run`.
ARGS   ?=

# A stamp for each set of extras that was installed; another set is added to the same environment.
stamp_of = $(VENV)/.installed$(if $1,+$(subst $(comma),+,$1))
STAMP      := $(call stamp_of,$(EXTRAS))
TEST_STAMP := $(call stamp_of,$(TEST_EXTRAS))

.DELETE_ON_ERROR:
.PHONY: help setup run test test-all test-nightly client-packages test-pipecat-oldest lint audit bench check-golden gpu-check image-lock train-small train-telephone dist clean
help: ## list the targets
	@sed -n -E 's/^([a-z-]+):[^#]*## (.*)/make \1\t\2/p' Makefile | expand -t 28
	@echo
	@echo "Variables: PYTHON=python3.12; EXTRAS=dev,stt,pipecat,cosyvoice,japanese,grpc,ray,redis,otel,test-chart,test-voices,triton,train; ARGS='--http-port 8081' of make run"

setup: $(STAMP) ## install vivavoce into .venv; EXTRAS=pipecat adds an extra
run: $(STAMP) ## install what serving needs, and serve an example script on 127.0.0.1
	@echo "When the server is ready, open the HTTP address that it prints and press Play, or call its AudioSocket"
	@echo "address from another terminal: $(BIN)/vivavoce phone HOST PORT --seconds 40 --out heard.wav"
	@$(BIN)/vivavoce serve --agent script:examples/script.txt $(ARGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or later is needed, this is %d.%d; name another one: make run PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing what serving needs into $(VENV): 400 MB, about a minute."
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed+%: pyproject.toml | $(BIN)/python
	@echo "Installing the extras $(subst +,$(comma),$*) into $(VENV), some minutes."
	$(PIP) --editable '.[$(subst +,$(comma),$*)]'
	@touch $@ $(VENV)/.installed

# Two processes run the tests of the networks and of the engine, which compute, and give way to what keeps to the clock
# beside them in CI. Then four run the others, which mostly wait for the clock: with RERUN=1, as in CI, those that fail
# are run once more, alone, as other programs may have had the machine. Only status 1 says that every test was run and
# some failed.
RERUN ?=
RUN_AGAIN = $(if $(RERUN),[ $$? -eq 1 ] && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none,false)
COMPUTING_TESTS := tests/golden tests/models tests/tts_engine
# Of developers' measurements, of the check of a card, on a processor, of training to the end, and of the recipes of the
# voices: no part of what is served. Of the documented answers, the many boundaries of each parameter.
NIGHTLY_TESTS := tests/gpu_check tests/models/cosyvoice/training/test_learning.py tests/telephone_decoder \
	tests/gateway/cli/test_finetune_processes.py tests/peers/test_every_documented_answer.py \
	tests/small_voice/test_small_voice.py $(addprefix tests/benches/,\
	cosyvoice mix xtts voices ways_in routing test_word_errors.py test_transcript_scoring.py test_pipecat_calls.py)

# The second run starts whatever the first gives; the target fails if either does.
OTHER_TESTS := $(addprefix --ignore=,$(COMPUTING_TESTS) $(NIGHTLY_TESTS))
run_tests = failed=0; \
	nice $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $1 $(COMPUTING_TESTS) $(addprefix --ignore=,$(NIGHTLY_TESTS)) || failed=1; \
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $1 $(OTHER_TESTS) || { $(RUN_AGAIN) $1 $(OTHER_TESTS); } || failed=1; \
	exit $$failed

test: $(TEST_STAMP) ## run the tests but for the long ones
	@echo "The tests take about 5 minutes on two cores. Those marked slow are left out; make test-all runs them too."
	$(call run_tests,-m "not slow")

test-all: $(TEST_STAMP) ## run all tests but the nightly ones, twice as long; EXTRAS=dev,stt,pipecat,cosyvoice,japanese,grpc,ray,redis,otel,test-chart,test-voices,triton,train skips the fewest
	$(call run_tests,)

test-nightly: $(TEST_STAMP) ## test the benches of developers, networks in two threads, and that planted faults are caught
	$(BIN)/python -m pytest -n 2 --dist loadfile $(NIGHTLY_TESTS)
	OMP_NUM_THREADS=2 $(BIN)/python -m pytest tests/golden/test_check_folder.py
	PYTHONPATH=tests $(BIN)/python -m planted_faults

client-packages: $(TEST_STAMP) ## install the clients that tests drive, which a test would do otherwise
	PYTHONPATH=tests $(BIN)/python -m shared.gateways.client_programs

test-pipecat-oldest: $(TEST_STAMP) ## test the oldest Pipecat supported; EXTRAS needs stt and pipecat
	RERUN=$(RERUN) tests/peers/pipecat_oldest.sh

lint: $(TEST_STAMP) ## check style, types and imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

audit: $(TEST_STAMP) ## check the installed dependencies for known advisories
	$(BIN)/python tests/audit.py

# The operator's bench of calls, then developers' benches of single parts. Each runs, and a missed target fails
# the whole at the end.
bench: export OMP_WAIT_POLICY := PASSIVE
bench: $(TEST_STAMP) ## measure calls and parts; fails if a target is missed
	@missed=0; measure() { echo "$$*"; env PYTHONPATH=tests "$$@" || missed=1; }; \
	measure $(BIN)/vivavoce bench call; \
	measure $(BIN)/python -m benches resample; \
	measure $(BIN)/python -m benches words; \
	if $(BIN)/python -c 'import sys; sys.path.insert(0, "tests"); from shared.browser import chromium as c; sys.exit(c.find_chromium() is None)'; \
		then measure $(BIN)/python -m benches webrtc; \
		else echo 'Skipped: benches webrtc needs Chromium (apt-get install chromium)'; fi; \
	if $(BIN)/python -c 'import sys; from importlib.util import find_spec; sys.exit(find_spec("pipecat") is None)'; \
		then measure $(BIN)/python -m benches pipecat; \
		else echo 'Skipped: benches pipecat needs Pipecat (make bench EXTRAS=dev,stt,pipecat)'; fi; \
	exit $$missed

# DATA names another folder in the layout of tests/golden/data, or tests/golden/xtts_data.
DATA ?= tests/golden/data
check-golden: $(TEST_STAMP) ## compare the networks with reference vectors, of DATA=FOLDER
	PYTHONPATH=tests $(BIN)/python -m golden $(DATA)

# OUT keeps the results; run again, the check goes on with the steps that are not done.
OUT    ?= gpu-check
DEVICE ?= cuda
gpu-check: $(TEST_STAMP) ## check and measure a graphics card in at most 12 minutes, OUT=FOLDER, FIRST=1 in 6; EXTRAS needs cosyvoice
	PYTHONPATH=tests $(BIN)/python -m gpu_check --out $(OUT) --device $(DEVICE) $(if $(FIRST),--first) $(if $(QUICK),--quick)

# uv resolves for the image's Python, which may be another than this one.
IMAGE := examples/deploy/image
image-lock: $(TEST_STAMP) ## renew the lock files of the image
	$(PIP) --quiet 'uv>=0.9'
	@lock() { target=$$1; shift; $(BIN)/uv pip compile pyproject.toml --extra grpc --extra redis --extra otel "$$@" \
		--upgrade --quiet --python-version 3.13 --python-platform x86_64-manylinux_2_28 --generate-hashes \
		--no-emit-index-url --custom-compile-command 'make image-lock' \
		--output-file $(IMAGE)/requirements-$$target.txt; }; \
	lock cpu --extra onnx && lock cuda --extra cosyvoice --extra ray

# OUT keeps what is done; run again, the training goes on where it was ended.
train-small: OUT := $(if $(filter file,$(origin OUT)),out/small-voice,$(OUT))
train-small: $(TEST_STAMP) ## train a small CosyVoice 2 bundle that speaks, hours, OUT=FOLDER; EXTRAS needs cosyvoice
	PYTHONPATH=tests OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m small_voice $(OUT)

train-telephone: OUT := $(if $(filter file,$(origin OUT)),out/telephone-decoder,$(OUT))
train-telephone: $(TEST_STAMP) ## train the decoder for telephone calls, an hour or two, OUT=FOLDER; EXTRAS needs cosyvoice
	PYTHONPATH=tests OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m telephone_decoder $(OUT)

# The wheel is made of the source archive, as it is for those who build it themselves.
dist: $(BIN)/python ## build the source archive and the wheel into dist, with their checksums
	rm -rf dist build
	$(PIP) --quiet 'build>=1.2'
	$(BIN)/python -m build --quiet
	cd dist && sha256sum *.tar.gz *.whl >SHA256SUMS && cat SHA256SUMS

clean: ## remove .venv and what was built
	rm -rf $(VENV) $(VENV)-* build dist *.egg-info
