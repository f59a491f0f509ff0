"""The API of Coqui TTS's server."""
