"""Small parts that several oracles need: networks, distributions, Adam, gradients."""
