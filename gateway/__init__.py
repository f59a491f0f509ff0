"""Sockets, HTTP, process life, command line: everything of vivavoce that touches the network."""
