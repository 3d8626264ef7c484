"""Where experience comes from: rollouts, and what is kept of them."""
