"""Simulated peers that pace the playout, each from the reference of its system and without I/O."""
