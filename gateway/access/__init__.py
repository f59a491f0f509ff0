"""Access control: API keys and their limits, the origins of web pages, and the URLs that clients name."""
