"""Calls that the gateway makes: their states, the keys that it presses, and what answers."""
