"""Diagnosis rules, one a file, listed in `registry`."""
