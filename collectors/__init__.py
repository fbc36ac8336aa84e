"""Live sources, one a file."""
