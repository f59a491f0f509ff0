"""``vivavoce phone``."""
