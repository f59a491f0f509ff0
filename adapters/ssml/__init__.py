"""SSML: the document that is spoken, its arrival in pieces, and the readings of say-as."""
