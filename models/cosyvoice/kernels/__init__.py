"""Kernels in Triton for a GPU that only CosyVoice uses, on those of ``models.kernels``."""
