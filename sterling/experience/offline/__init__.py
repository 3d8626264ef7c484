"""Sources of batches from datasets and from several sources at once."""
