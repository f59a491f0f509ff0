"""jambonz' API of custom speech vendors: speech over HTTP, and a WebSocket that takes text in pieces."""
