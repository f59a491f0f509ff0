"""Comparison with reference vectors: what upstream's networks answer at reduced sizes."""
