"""CosyVoice's language model: text ids to speech ids."""
