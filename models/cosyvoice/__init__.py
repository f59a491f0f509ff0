"""CosyVoice 2 and 3: networks on batch-first states, and how they are fed. No sessions, no threads."""
