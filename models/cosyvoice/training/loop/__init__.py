"""The loop of a training run: steps, checkpoints, processes and metrics."""
