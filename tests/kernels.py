"""Runs a notebook with a kernel that needs no ports: two that start together may take the same."""

from __future__ import annotations

import tempfile

import pytest


def run_notebook(notebook, folder):
    """Run all cells in a folder; their outputs are in the notebook then."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    from traitlets.config import Config

    # The names of sockets are short.
    with tempfile.TemporaryDirectory(dir="/tmp") as sockets:
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        nbclient.NotebookClient(
            notebook, timeout=120, resources={"metadata": {"path": str(folder)}}, config=config
        ).execute()
