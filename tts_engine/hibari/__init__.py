"""The packaged voice as a backend of the engine."""
