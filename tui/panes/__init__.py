"""One pane a file."""
