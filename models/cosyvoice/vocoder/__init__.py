"""The vocoders of CosyVoice 2 and 3: mel spectrogram to samples."""
