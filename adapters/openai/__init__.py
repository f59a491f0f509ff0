"""OpenAI's speech API as values."""
