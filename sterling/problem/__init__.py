"""What a problem declares beside its spaces: agents, channels, goals, entries only critics see.

No environments: those are in ``envs/``.
"""
