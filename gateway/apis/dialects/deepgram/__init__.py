"""Deepgram's speech API: ``/v1/speak`` and ``/v2/speak``, over HTTP and as WebSockets."""
