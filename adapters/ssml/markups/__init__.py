"""Markups of text: one file or folder each."""
