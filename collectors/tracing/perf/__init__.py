"""perf as a tracer, where bcc cannot be used."""
