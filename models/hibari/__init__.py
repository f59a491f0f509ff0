"""The packaged voice (hibari-tts) as streaming steps."""
