"""OpenAI's speech API: speech, models and voices."""
