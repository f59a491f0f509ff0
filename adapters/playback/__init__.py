"""Playback towards a listener: pacing, position and the words heard. No sockets, no clock."""
