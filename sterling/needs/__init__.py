"""What an algorithm asks for: its feeds of batches, and how experience is collected."""
