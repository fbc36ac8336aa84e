"""What joins several subjects for a screen or a document."""
