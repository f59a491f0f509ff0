"""The ways into a call, each a folder with what is its own."""
