"""The embedded LLM server and its load generator."""
