"""Pure drawing: a view model and a size in, lines out."""
