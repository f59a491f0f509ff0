"""Kokoro voices: styles, graph and phoneme ids."""
