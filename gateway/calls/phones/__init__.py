"""Phone calls whose sockets a media server serves: AudioSocket and RTP."""
