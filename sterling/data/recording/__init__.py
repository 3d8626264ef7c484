"""Record the episodes of any Gymnasium loop as a dataset, as they end."""
