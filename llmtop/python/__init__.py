"""What scripts and notebooks use: files as traces, and what the views show of them as columns. See docs/python.md."""
