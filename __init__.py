"""vivavoce: streaming text-to-speech for live conversations."""

__version__ = "0.1.0"
