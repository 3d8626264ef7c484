"""Show and log a run while it goes on: terminal, metrics files, TensorBoard, W&B."""
