"""dask's own tests, with all profilers of this package registered: ``python -m tests.dask_suite``."""
