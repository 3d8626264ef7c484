"""Backends that step inside a compiled program: EnvPool and gymnax."""
