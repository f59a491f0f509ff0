"""Streams of engines in other processes: the messages, both ends, and recovery from a lost replica."""
