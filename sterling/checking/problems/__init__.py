"""What an algorithm is checked on beside the probes: worlds, logs, and logs made for the check."""
