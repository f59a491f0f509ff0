"""Parts that several ways in are made of."""
