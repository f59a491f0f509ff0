"""CosyVoice's vocoders: mel spectrogram to samples."""
