"""Reports: one self-contained page, its figures as files, its tables as CSV and on a terminal."""
