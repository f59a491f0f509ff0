"""Fine-tuning of CosyVoice: losses, datasets and the loop. A server never imports it."""
