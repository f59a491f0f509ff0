"""Devices that networks compute on: processors, cards, ONNX Runtime's providers."""
