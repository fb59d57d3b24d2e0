"""Functions that return a ready Stemma."""
