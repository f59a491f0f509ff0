"""The agents that settings can name: one file each."""
