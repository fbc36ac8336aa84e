"""perf as a tracer, where probes cannot be used."""
