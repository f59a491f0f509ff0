#!/usr/bin/env bash
# The Pipecat tests against the oldest version that the extra allows, in an environment beside the checkout's own:
# it sees what .venv has, and holds only what the old version wants otherwise.
# Usage: tests/peers/pipecat_oldest.sh [PYTEST ARGUMENTS]    after `make setup EXTRAS=dev,stt,pipecat`
set -euo pipefail
cd "$(dirname "$0")/../.."
version=1.12.0
beside=.venv-pipecat-oldest
made="$beside/.pipecat-$version"

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

if [ ! -e "$made" ] || [ pyproject.toml -nt "$made" ] || [ .venv/pyvenv.cfg -nt "$made" ]; then
    echo "Setting up $beside with Pipecat $version."
    .venv/bin/python -m venv --clear --without-pip "$beside"
    echo "import site; site.addsitedir('$(packages_of .venv)')" >"$(packages_of "$beside")/beside.pth"
    .venv/bin/python -m pip --quiet --quiet --disable-pip-version-check --python "$beside/bin/python" \
        install --progress-bar off "pipecat-ai[webrtc,runner,silero,websocket]==$version"
    touch "$made"
fi
[ "$("$beside/bin/python" -c 'from importlib.metadata import version; print(version("pipecat-ai"))')" = "$version" ]
exec "$beside/bin/python" -m pytest -q tests/adapters/pipecat tests/gateway/apis/native_stream/test_pipecat_service.py tests/peers/test_pipecat_*.py "$@"
