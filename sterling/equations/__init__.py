"""The equations of the papers as pure functions of arrays."""
