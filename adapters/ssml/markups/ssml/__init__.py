"""SSML."""
