"""Interfaces of backends, the registry of the kinds of voices, and a backend in a child process."""
