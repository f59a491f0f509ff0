"""The recipe of a small CosyVoice 2 that speaks: its world, teacher, networks and training."""
