"""Parts of networks that learn values of actions: noisy layers."""
