"""The scripts, styles and frames of pages, which are files beside the views."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["text_of"]


def text_of(name: str) -> str:
    """The text of such a file, by its path from the views on."""
    return files("dask_diag.views").joinpath(name).read_text(encoding="utf-8")
