"""Asterisk's AudioSocket protocol.

``protocol``, ``g711_detection`` and ``server_connection`` do no I/O; ``server`` and ``pending_call`` accept
connections for the gateway and the Pipecat transport. ``adapters.media`` serves the calls.
"""
