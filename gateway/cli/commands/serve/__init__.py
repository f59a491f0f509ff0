"""``vivavoce serve`` and ``vivavoce settings``, and the log that a server writes."""
