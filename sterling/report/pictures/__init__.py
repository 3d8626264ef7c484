"""Plots and films. One file per picture; all use ``plot_style``."""
