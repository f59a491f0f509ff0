"""Checkpoint folders: detection, checks, reading, conversion, and folders with random weights."""
