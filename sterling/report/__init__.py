"""What a run tells: rows, progress, curves, films."""
