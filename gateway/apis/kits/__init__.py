"""Kits of client dialects: sockets of streamed text, the requests of OpenAI and the tasks of DashScope."""
