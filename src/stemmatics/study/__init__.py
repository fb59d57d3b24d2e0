"""Plans, executes and verifies: joins measures, probes, scale, store and report."""
