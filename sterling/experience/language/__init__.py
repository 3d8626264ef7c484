"""Sources of text: conversations, demonstrations, pairs of answers."""
