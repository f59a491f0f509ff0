"""CosyVoice 2 and 3 behind the engine: policy, sentences on their way, and the runners of the networks."""
