"""Cartesia's speech API: a WebSocket of many contexts, speech over HTTP, and the list of voices."""
