"""Asterisk's AudioSocket protocol."""
