"""Recurrent units beside the GRU: the LSTM, the linear recurrent unit and S5."""
