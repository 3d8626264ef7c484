"""Read tables of logged steps as datasets: CSV and Parquet files, and data frames."""
