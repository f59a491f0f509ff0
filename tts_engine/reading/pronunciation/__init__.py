"""Pronunciation of single words: phonemes, respellings, and lexicons of them."""
