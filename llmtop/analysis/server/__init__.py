"""A server: whether it is alive, what it is set to, queues, latencies, objectives."""
