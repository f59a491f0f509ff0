"""Kokoro voices as a backend of the engine."""
