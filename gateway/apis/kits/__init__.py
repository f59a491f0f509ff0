"""Kits of client dialects: the requests of OpenAI and the tasks of DashScope."""
