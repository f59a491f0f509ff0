"""The exported networks on tensors: as the networks in torch, executed by ONNX Runtime or TensorRT."""
