"""Calls over the WebSockets of Asterisk's chan_websocket."""
