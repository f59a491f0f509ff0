"""Calls that come in over WebSockets on which the peer paces the playout."""
