"""Phonemes of English in the notations that voices take."""
