"""Sources that act in environments: rollouts, whole episodes, guides, populations, self-play."""
