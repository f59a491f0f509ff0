"""CosyVoice 2 and 3: the networks on batch-first states, and what feeds them."""
