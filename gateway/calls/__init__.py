"""Calls of phones and browsers: their state, events, API, agents, and the ways in."""
