"""Learning values of discrete actions."""
