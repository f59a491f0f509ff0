"""Training of the vocoder: against discriminators, with crops of recordings."""
