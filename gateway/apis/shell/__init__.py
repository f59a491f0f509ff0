"""Shared parts of the client dialects: speech jobs, responses, formats, model names and errors."""
