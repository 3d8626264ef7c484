"""Layers that few algorithms use: noise, dropout, batch renormalisation, residual blocks."""
