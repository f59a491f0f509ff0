"""A Pipecat transport for Asterisk's AudioSocket."""
