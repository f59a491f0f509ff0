"""Protocols, codecs and frameworks of other projects.

Protocol cores and codecs (``audio``, ``playback``, ``audiosocket.protocol``, ``dashscope``, ``rtp``,
``media_streams``, ``ssml``, ``transcript_queue``) do no I/O: bytes, values and times come in as arguments.
Framework plug-ins (``pipecat``, ``webrtc``, ``client``, and the asyncio part of ``audiosocket``) use sockets
of their framework; the gateway imports the optional ones only where it mounts them. ``media`` has the clock
of calls, and ``media.servers`` the process that owns the sockets of phone calls and plays their speech.
"""
