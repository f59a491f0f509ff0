"""Asterisk's AudioSocket protocol.

``protocol``, ``g711_detection`` and ``server_connection`` do no I/O; ``call`` and ``server`` are the asyncio
server on top of them, shared by the gateway and the Pipecat transport.
"""
