"""The configuration of the server: its tables."""
