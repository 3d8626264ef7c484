"""Annotations of shapes are executed in all of Sterling; this costs a process ten seconds."""

from jaxtyping import install_import_hook

install_import_hook("sterling", "beartype.beartype")
