"""DashScope's WebSocket protocol."""
