"""The flow of CosyVoice: speech ids to mel spectrogram."""
