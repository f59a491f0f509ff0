"""The engine: streams, sessions, scheduling, backends and stored voices. No network and no protocol."""
