"""Checkpoints by name: pins, files, loading, saving."""
