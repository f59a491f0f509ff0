"""Text cleaning and text ids of XTTS v2."""
