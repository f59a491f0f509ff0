"""RTP calls: packets, reports, keys and the caller's audio. No sockets, no clock."""
