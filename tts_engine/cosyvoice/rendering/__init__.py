"""Rendering of speech ids: what runners of every library share, and the runner of exported graphs."""
