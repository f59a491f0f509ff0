"""Exported graphs in TensorRT on a card. Tested on a stand-in of its API; no card has run it."""
