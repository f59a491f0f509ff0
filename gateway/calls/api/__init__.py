"""The calls API: its routes and messages, and the peers that are attached to a call."""
