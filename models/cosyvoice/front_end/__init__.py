"""Turns text and recordings into the inputs of the networks."""
