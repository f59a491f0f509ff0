"""Other people's protocols, codecs and frameworks, without I/O of their own."""
