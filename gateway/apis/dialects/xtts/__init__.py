"""XTTS servers' APIs: xtts-streaming-server, xtts-api-server, and a server that writes files."""
