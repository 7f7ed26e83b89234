"""What the diagnostics cost, beside dask.diagnostics in the same run."""
