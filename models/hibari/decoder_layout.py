"""Sizes of the packaged voice's streaming decoder: a stack of convolutions over frames of 12.5 ms."""

LAYERS = 9  # convolutions in a row: one at the input, then one in each block
KERNEL = 7
CONTEXT_FRAMES = KERNEL - 1
EDGE_FRAMES = KERNEL // 2
LOOKAHEAD_FRAMES = LAYERS * EDGE_FRAMES
HIDDEN_CHANNELS = 130
CHANNELS = 256
