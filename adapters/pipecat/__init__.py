"""Pipecat services and transports."""
