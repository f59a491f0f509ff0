"""``vivavoce say``."""
