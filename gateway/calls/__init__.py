"""Calls of phones and browsers: state, events, attached peers, API, agents, and the legs that carry them."""
