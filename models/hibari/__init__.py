"""The packaged voice, hibari-tts, rendered in streaming steps."""
