"""Kernels in Triton that several voice families use, and the parts that those of one family share."""
