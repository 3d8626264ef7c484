"""Evaluate frozen policies during training, and write what was measured as rows."""
