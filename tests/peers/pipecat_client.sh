#!/usr/bin/env bash
# Pipecat's browser client from npm against the gateway's calls in Chromium; see pipecat_client.py.
# Usage: tests/peers/pipecat_client.sh [CLIENT-JS-VERSION TRANSPORT-VERSION]
# Needs npm and its registry to build the bundle; the calls are on loopback. Removes its files at the end.
set -euo pipefail
client="${1:-1.13.1}" transport="${2:-1.10.8}"
root="$(cd "$(dirname "$0")/../.." && pwd)"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private": true}' > package.json
npm install --silent --no-audit --no-fund --ignore-scripts \
    "@pipecat-ai/client-js@$client" "@pipecat-ai/small-webrtc-transport@$transport" esbuild@0.28.2
echo 'export * from "@pipecat-ai/client-js"; export * from "@pipecat-ai/small-webrtc-transport";' > all.js
node_modules/.bin/esbuild all.js --bundle --format=iife --global-name=pipecat --log-level=warning --outfile=bundle.js
cd "$root"
PIPECAT_CLIENT_BUNDLE="$folder/bundle.js" "${PYTHON:-.venv/bin/python}" -m pytest -q tests/peers/pipecat_client.py
