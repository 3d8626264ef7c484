"""Algorithms that learn from fresh rollouts of one agent, beside ppo. One file each."""
