"""The equations of papers as pure functions of arrays: losses, returns, advantages, weights."""
