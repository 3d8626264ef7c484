"""Train more seeds until a comparison is decided. Built on whole runs."""
