"""Simulated peers of calls on WebSockets, for ``vivavoce phone`` and the tests."""
