"""Voice engines behind one interface."""
