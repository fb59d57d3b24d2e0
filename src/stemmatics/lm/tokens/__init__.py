"""Tokenizers, token spans and classes, windows."""
