"""Calls that the gateway makes over SIP: where they may go, and how they are placed and redirected."""
