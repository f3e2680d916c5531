"""What a node is and what its GPUs do: the machine from /proc, devices by NVML or pretended. `protocol.Probe` hides which."""
