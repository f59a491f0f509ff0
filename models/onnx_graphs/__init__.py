"""ONNX graphs of decoders and their parts, built node by node, and their steps in ONNX Runtime."""
