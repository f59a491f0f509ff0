"""Markups of text that the engine reads: one file or folder each."""
