"""The native stream: a WebSocket that speaks text while it is written."""
