"""Recurrent networks and their units (GRU, LSTM, linear recurrent unit, S5); state-space models."""
