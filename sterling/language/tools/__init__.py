"""Tools that a model may call: a calculator, search, a database."""
