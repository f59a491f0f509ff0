"""Codecs, encoders, resamplers and tempo change."""
