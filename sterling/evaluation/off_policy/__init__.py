"""Off-policy evaluation: the value of a policy, estimated from another policy's data."""
