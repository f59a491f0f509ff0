"""DashScope's tasks over a WebSocket, which PAI speaks too."""
