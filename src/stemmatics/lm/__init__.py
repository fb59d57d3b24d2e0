"""Texts, tokens, checkpoints and the forward pass: the loss of a text under a model."""
