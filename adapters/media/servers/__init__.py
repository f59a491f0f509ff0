"""Media servers: processes, or a thread, that play the speech of phone calls."""
