"""The CosyVoice API of Alibaba's PAI: reference recordings, speech over HTTP, and a WebSocket."""
