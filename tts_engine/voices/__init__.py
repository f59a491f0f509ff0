"""Voices: loaded, stored on file, enrolled from recordings."""
