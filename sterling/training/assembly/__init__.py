"""Build a run from its settings: environment, agent, sources. Nothing is trained here."""
