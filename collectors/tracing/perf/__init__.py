"""perf as a tracer, where neither bcc nor bpftrace can be used."""
