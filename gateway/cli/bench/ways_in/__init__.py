"""The ways in which a phone call reaches the gateway, compared."""
