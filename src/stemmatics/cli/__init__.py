"""The stemma command: parse, call, print."""
