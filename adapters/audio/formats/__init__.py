"""Audio formats: records for ``encoders`` or ``line_codecs``."""
