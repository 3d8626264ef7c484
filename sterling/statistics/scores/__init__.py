"""Tables of scores: read them, normalise them, bound them."""
