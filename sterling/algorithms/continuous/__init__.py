"""Online algorithms for continuous actions, beside sac and td3. One file each."""
