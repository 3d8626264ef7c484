"""How scenes become tokens: what each seat heard and said, in one context or several."""
