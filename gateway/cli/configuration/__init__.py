"""The configuration of the server, as commands read it, and the list of its settings."""
