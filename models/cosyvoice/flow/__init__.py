"""CosyVoice's flow: speech ids to mel spectrogram."""
