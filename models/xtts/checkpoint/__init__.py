"""Checks, reads, converts and generates folders of XTTS v2 weights."""
