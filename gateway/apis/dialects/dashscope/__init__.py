"""DashScope's CosyVoice API over WebSocket and HTTP."""
