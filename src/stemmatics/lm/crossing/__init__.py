"""Two models of one shape, their layers exchanged."""
