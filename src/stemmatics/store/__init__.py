"""The run folder: Parquet tables of sums, one file per fact, queried through DuckDB."""
