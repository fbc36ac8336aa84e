"""A recording: what the live screen has shown, as a file that can be read at every moment of its life."""
