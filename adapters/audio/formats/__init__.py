"""Audio formats: one file or folder each, with a record for ``encoders`` or ``line_codecs``."""
