"""Protocols, codecs and frameworks of other projects.

Protocol cores and codecs (``audio``, ``playback``, ``audiosocket.protocol``, ``dashscope``,
``native_stream``, ``ssml``, ``prosody``) do no I/O: bytes, values and times come in as arguments. Framework
plug-ins (``pipecat``, ``webrtc``, ``client``, and the asyncio part of ``audiosocket``) use sockets of their
framework; the gateway imports the optional ones only where it mounts them.
"""
