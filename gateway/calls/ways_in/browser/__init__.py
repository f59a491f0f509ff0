"""Calls from browsers: signalling, data channel, language model, and the page."""
