"""The protocol of vivavoce's own WebSocket."""
