"""The API of LocalAI."""
