"""The kernel's view through bpftrace, where bcc is not to be had (docs/tracers.md)."""
