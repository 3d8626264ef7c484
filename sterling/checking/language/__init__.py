"""The review of language tasks."""
