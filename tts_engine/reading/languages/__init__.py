"""The languages that are read, a folder each, and their registry."""
