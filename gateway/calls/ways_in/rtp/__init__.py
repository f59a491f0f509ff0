"""RTP calls, on a UDP port each."""
