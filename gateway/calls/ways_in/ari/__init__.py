"""Calls that Asterisk hands over through its REST interface (ARI)."""
