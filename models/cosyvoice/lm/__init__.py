"""Language model of CosyVoice: text ids to speech ids."""
