"""The chosen encoder of observations: presets, a user's own, and what a run says of it."""
