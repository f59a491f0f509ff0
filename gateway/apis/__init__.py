"""The speech APIs that clients already speak, each one file over one engine call."""
