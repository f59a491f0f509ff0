#!/usr/bin/env bash
# Pipecat's own client for browsers, from npm, against our calls in Chromium: see pipecat_client.py.
# Usage: tests/peers/pipecat_client.sh [CLIENT-JS-VERSION TRANSPORT-VERSION]
# Needs npm and its registry for the bundle; the calls are on loopback. Leaves nothing behind.
set -euo pipefail
client="${1:-1.13.1}" transport="${2:-1.10.8}"
root="$(cd "$(dirname "$0")/../.." && pwd)"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
cd "$place"
echo '{"private": true}' > package.json
npm install --silent --no-audit --no-fund --ignore-scripts \
    "@pipecat-ai/client-js@$client" "@pipecat-ai/small-webrtc-transport@$transport" esbuild@0.28.2
echo 'export * from "@pipecat-ai/client-js"; export * from "@pipecat-ai/small-webrtc-transport";' > all.js
node_modules/.bin/esbuild all.js --bundle --format=iife --global-name=pipecat --log-level=warning --outfile=bundle.js
cd "$root"
PIPECAT_CLIENT_BUNDLE="$place/bundle.js" "${PYTHON:-.venv/bin/python}" -m pytest -q tests/peers/pipecat_client.py
