"""Inworld's speech API: speech over HTTP, a WebSocket with contexts, and the voices."""
