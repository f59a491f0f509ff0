"""XTTS v2: text and a recorded voice to speech, re-implemented from its released weights."""
