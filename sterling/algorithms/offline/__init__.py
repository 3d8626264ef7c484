"""Learning from logged experience alone, or from it first and then from more."""
