"""ONNX files of the networks, and their execution in ONNX Runtime."""
