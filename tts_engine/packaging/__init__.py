"""Installed packages: the command that adds an extra, and the records that other packages add."""
