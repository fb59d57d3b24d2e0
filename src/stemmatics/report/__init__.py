"""Pages, tables and figures from what is handed in."""
