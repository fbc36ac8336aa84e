"""The kernel's view: threads on and off the CPU, system calls, stacks and library calls, by any of three tracers."""
