"""Learners of language models: the same record, the same loop."""
