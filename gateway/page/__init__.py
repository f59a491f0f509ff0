"""The page with which people hear a server: speech of a typed text, and voices made of recordings."""
