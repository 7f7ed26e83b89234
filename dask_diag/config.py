"""The defaults that users can set with dask's configuration, in files, variables or code."""

from __future__ import annotations

from pathlib import Path

import dask.config
import yaml

__all__ = ["load_defaults"]

_FILE = Path(__file__).with_name("diag.yaml")


def load_defaults() -> None:
    """Tell dask of this package's defaults, and put a file to edit where dask keeps them."""
    dask.config.ensure_file(source=str(_FILE))
    with _FILE.open(encoding="utf-8") as file:
        dask.config.update_defaults(yaml.safe_load(file))
