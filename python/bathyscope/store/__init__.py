"""Run directories, Parquet and DuckDB; the only importer of duckdb."""
