"""Where probes run: workers on this machine, or a cluster."""
