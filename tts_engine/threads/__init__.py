"""The threads of an engine, and the sessions that they and its streams share."""
