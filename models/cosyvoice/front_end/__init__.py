"""From text and recordings to what the networks are conditioned on."""
