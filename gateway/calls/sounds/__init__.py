"""Sounds besides speech on calls: files that programs play, and ambience, thinking sound and hold music."""
