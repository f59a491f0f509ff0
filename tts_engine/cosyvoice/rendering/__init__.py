"""The render stage of CosyVoice: speech ids to samples, in this process or in others."""
