"""Training: what a user calls, the loop, the agent, and the trained run. Rooms hold the rest."""
