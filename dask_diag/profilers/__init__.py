"""Profilers: the public classes that users enter or register around a computation."""

from dask_diag.config import load_defaults

load_defaults()
