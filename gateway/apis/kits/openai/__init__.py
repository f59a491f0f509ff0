"""OpenAI's requests and errors, of which the native stream's messages are made too."""
