"""The API of Piper's HTTP server."""
