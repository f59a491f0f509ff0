"""Who may do what, and how much: API keys, limits, browser origins, and URLs that clients name."""
