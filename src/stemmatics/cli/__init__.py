"""The stemma command: one file a command, which parses, calls and prints."""
