"""vivavoce's own WebSocket API, which takes text as it is written."""
