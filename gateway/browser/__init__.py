"""Calls from browsers: the page, its signalling, and what is said on such a call."""
