"""Opus: in Ogg files and streams, and in packets of calls."""
