"""Pacing of speech towards a listener, and the words that were heard."""
