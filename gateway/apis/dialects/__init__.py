"""The client dialects, a folder each."""
