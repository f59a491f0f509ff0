"""ElevenLabs' speech API: speech over HTTP, two WebSockets that take text in pieces, voices and models."""
