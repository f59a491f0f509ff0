"""WebRTC peers on aiortc."""
