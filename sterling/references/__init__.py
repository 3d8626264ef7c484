"""What others measured: published scores (``published``) and tables to normalise by."""
