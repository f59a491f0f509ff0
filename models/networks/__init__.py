"""The torch code that every family shares: devices, number formats, layers, states, captured CUDA graphs."""
