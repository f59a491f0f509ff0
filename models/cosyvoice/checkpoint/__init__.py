"""A released checkpoint folder: recognised, checked, read, converted, and written with random weights."""
