"""Sources of experience. Here: how actors act, the source protocol, wrapping by name."""
