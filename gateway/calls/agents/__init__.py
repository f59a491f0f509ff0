"""Agents, which drive calls without a program."""
