"""Model-free algorithms for one agent that learns while it acts. One file each."""
