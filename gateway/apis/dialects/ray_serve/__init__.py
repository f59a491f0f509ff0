"""The CosyVoice API of a Ray Serve deployment: ``/v1/model/cosyvoice/...``."""
