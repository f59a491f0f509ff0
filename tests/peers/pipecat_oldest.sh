#!/usr/bin/env bash
# The Pipecat tests against the oldest version that the extra allows, in an environment of its own that sees the
# packages of .venv and contains only those that the old version needs in other versions.
# Usage: [RERUN=1] tests/peers/pipecat_oldest.sh    after `make setup EXTRAS=dev,stt,pipecat`
set -euo pipefail
cd "$(dirname "$0")/../.."
version=1.12.0
environment=.venv-pipecat-oldest
marker="$environment/.pipecat-$version"

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

if [ ! -e "$marker" ] || [ pyproject.toml -nt "$marker" ] || [ .venv/pyvenv.cfg -nt "$marker" ]; then
    echo "Setting up $environment with Pipecat $version."
    .venv/bin/python -m venv --clear --without-pip "$environment"
    echo "import site; site.addsitedir('$(packages_of .venv)')" >"$(packages_of "$environment")/beside.pth"
    .venv/bin/python -m pip --quiet --quiet --disable-pip-version-check --python "$environment/bin/python" \
        install --no-compile --progress-bar off "pipecat-ai[webrtc,runner,silero,websocket]==$version"
    touch "$marker"
fi
[ "$("$environment/bin/python" -c 'from importlib.metadata import version; print(version("pipecat-ai"))')" = "$version" ]
# Load and long repetition show nothing of a version; the newest has them.
chosen="not 25_of_25 and not twenty_bots and not without_processor_time"
tests=(tests/adapters/pipecat tests/gateway/apis/dialects/native_stream/test_pipecat_service*.py tests/peers/test_pipecat_*.py)
# A cache of its own: other tests may run at the same time.
options=(-q -o cache_dir="$environment/.pytest_cache" -k "$chosen")
run_tests() { "$environment/bin/python" -m pytest "${options[@]}" "$@" "${tests[@]}"; }
run_tests -n 2 --dist loadfile && exit
status=$?  # 1: every test was run, and some failed
if [ -z "${RERUN:-}" ] || [ "$status" -ne 1 ]; then exit 1; fi
run_tests --last-failed --last-failed-no-failures none
