"""Everything of dask's internals that this package touches, in one folder."""
