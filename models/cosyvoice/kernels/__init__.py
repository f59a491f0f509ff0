"""Kernels in Triton for a GPU: of the flow and of the language model."""
