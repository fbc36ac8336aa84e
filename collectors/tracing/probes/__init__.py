"""The kernel's view: system calls, the scheduler, stacks and library calls, by eBPF probes (docs/ebpf.md)."""
