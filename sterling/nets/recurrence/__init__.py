"""Recurrent units beside the GRU: the LSTM and the linear recurrent unit."""
