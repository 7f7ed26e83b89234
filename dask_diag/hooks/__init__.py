"""Uses of dask's internals: nothing else in the package touches them."""
