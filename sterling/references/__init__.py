"""Published scores (``published``), bounds of returns (``bounds``), and normalisation tables."""
