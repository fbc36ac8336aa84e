"""Kernels of captures: counters, families, bounds, stalls, rows."""
