"""OpenAI's Realtime API, its speech side: text in, audio and its transcript out."""
