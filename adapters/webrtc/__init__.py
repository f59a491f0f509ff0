"""WebRTC peers on aiortc: negotiation, audio in both directions and a data channel."""
