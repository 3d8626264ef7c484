"""Recurrent networks, and their units: the GRU, the LSTM, the linear recurrent unit and S5."""
