"""What the client dialects share: speech jobs, responses, audio formats, model names, sockets and errors."""
