"""Exported networks on numpy arrays, in ONNX Runtime alone: no module here imports torch."""
