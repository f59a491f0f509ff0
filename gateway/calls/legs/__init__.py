"""The legs of calls, which join a connection to its call: of phones, and of WebSockets."""
