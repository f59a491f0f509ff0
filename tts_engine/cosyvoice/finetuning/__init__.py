"""Fine-tuning of a CosyVoice bundle: recordings to a data set, training, evaluation and export."""
