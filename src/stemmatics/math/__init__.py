"""Arrays in, arrays out: no files, no clock, no models, no global random state."""
