"""Threads of a live server: shares, waits, calls and stacks."""
