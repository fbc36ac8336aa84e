"""What NVML tells of the GPUs, from its calls to the readings."""
