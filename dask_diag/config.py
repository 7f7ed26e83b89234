"""The defaults that users can change with dask's configuration, in files, variables or code."""

from __future__ import annotations

from pathlib import Path

import dask.config
import yaml

__all__ = ["load_defaults"]

_FILE = Path(__file__).with_name("diag.yaml")


def load_defaults() -> None:
    """Add this package's defaults to dask's configuration.

    What a user has set goes before them. No file is written: importing a library should leave
    nothing in the user's home.
    """
    with _FILE.open(encoding="utf-8") as file:
        dask.config.update_defaults(yaml.safe_load(file))
