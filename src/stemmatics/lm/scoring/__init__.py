"""Losses and states from forward passes."""
