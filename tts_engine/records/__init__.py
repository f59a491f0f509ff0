"""Records of streams: their lines in the log, and spans of their time."""
