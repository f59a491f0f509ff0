"""Opus in Ogg and in WebM."""
