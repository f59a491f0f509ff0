"""Shared by the client dialects of a server: its speech, jobs, threads that encode, and names of models."""
