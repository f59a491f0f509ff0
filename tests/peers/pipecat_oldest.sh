#!/usr/bin/env bash
# The Pipecat tests against the oldest version that the extra allows, in an environment of their own.
# Usage: tests/peers/pipecat_oldest.sh [VERSION]    Needs a package index. Leaves nothing behind.
set -euo pipefail
version="${1:-1.12.0}"
root="$(cd "$(dirname "$0")/../.." && pwd)"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
git -C "$root" archive HEAD | tar --extract --directory "$place"
"${PYTHON:-python3}" -m venv "$place/.venv"
"$place/.venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "$place" pytest "pipecat-ai[webrtc,runner,silero,websocket]==$version"
cd "$place"
"$place/.venv/bin/python" -m pytest -q \
    tests/adapters/test_pipecat_tts.py tests/adapters/test_pipecat_audiosocket.py tests/peers/test_pipecat_pipeline.py
