"""The configuration of the server: the tables, their reading and their reference."""
