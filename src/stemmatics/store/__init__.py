"""The run folder: Parquet tables of sums, one file a fact, read through DuckDB."""
