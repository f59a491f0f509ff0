"""Calls over one WebSocket each, without I/O: Asterisk's chan_websocket and the media streams of carriers."""
