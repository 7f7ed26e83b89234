"""Recordings in files: saved at once or incrementally, loaded without executing anything."""

from dask_diag.storage.reading import load
from dask_diag.storage.writing import Writer, save

__all__ = ["Writer", "load", "save"]
