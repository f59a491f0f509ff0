"""The command line ``vivavoce``."""
