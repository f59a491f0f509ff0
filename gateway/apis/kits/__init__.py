"""Kits of client dialects: HTTP endpoints, sockets, request fields, errors; those of OpenAI and DashScope."""
