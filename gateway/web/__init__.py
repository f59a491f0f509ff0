"""The HTTP application: routes, back-pressure, request log, sockets and streamed answers."""
