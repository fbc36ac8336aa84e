"""Timelines of captures: spans, and an account of the time in which a GPU has nothing to do."""
