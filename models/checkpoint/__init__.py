"""Reads and writes the files of a bundle, of whichever family: weights, settings, digests."""
