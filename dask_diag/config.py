"""Defaults of this package in dask's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.config
import yaml

_FILE = Path(__file__).with_name("diag.yaml")


def load_defaults() -> None:
    """Add this package's defaults to dask's configuration.

    What a user has set goes before them. No file is written: importing a library should leave
    nothing in the user's home.
    """
    with _FILE.open(encoding="utf-8") as file:
        dask.config.update_defaults(yaml.safe_load(file))


def setting(name: str) -> Any:
    """Value of the configuration; loads the defaults again if a block has taken them with it.

    It has where they were loaded inside of it.
    """
    if dask.config.get(name, None) is None:
        load_defaults()
    return dask.config.get(name)
