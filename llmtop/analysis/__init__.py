"""Pure functions: a trace in, view models and findings out."""
