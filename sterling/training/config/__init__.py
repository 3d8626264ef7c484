"""Settings of a run: resolve, check, store and extend them. Nothing is built here."""
