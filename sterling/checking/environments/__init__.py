"""The review of environments: random play, and the rules that every world follows."""
