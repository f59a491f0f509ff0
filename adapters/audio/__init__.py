"""Audio formats, encoders, resamplers and tempo change. No I/O."""
