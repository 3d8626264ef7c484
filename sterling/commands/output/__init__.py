"""What commands print while they train and when they show transcripts."""
