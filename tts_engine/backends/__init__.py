"""Speech backends: the interface, the packaged voice, and a backend in a child process."""
