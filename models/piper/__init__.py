"""Piper voices: their configuration, graph and phoneme ids."""
