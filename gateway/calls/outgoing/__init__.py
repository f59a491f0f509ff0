"""Calls that the gateway makes, and their states."""
