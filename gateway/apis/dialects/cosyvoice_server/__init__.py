"""The servers of upstream CosyVoice: its HTTP endpoints and its gRPC service."""
