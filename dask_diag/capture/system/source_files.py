"""Whose a source file is: the user's, a library's, Python's, dask's or this package's."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache

import dask

__all__ = ["LIBRARY", "OF_DASK", "OWN", "STANDARD_LIBRARY", "USER", "owner_of_file"]

USER, LIBRARY, STANDARD_LIBRARY, OF_DASK, OWN = range(5)
"""Owners, the one first whose line says most to the user."""

_PACKAGE = os.path.dirname(os.path.abspath(sys.modules["dask_diag"].__file__ or "")) + os.sep
_DASK = os.path.dirname(os.path.abspath(dask.__file__)) + os.sep
_PACKAGES = ("/site-packages/", "/dist-packages/")
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))


@lru_cache(4096)
def owner_of_file(file: str) -> int:
    """The owner of a source file, by its path alone."""
    if file.startswith(_PACKAGE):
        return OWN
    path = file.replace("\\", "/")
    if file.startswith(_DASK) or any(f"{part}distributed/" in path for part in _PACKAGES):
        return OF_DASK
    if any(part in path for part in _PACKAGES):
        return LIBRARY
    if file.startswith((*_STANDARD, "<frozen ", "<unknown>")):
        return STANDARD_LIBRARY
    return USER
