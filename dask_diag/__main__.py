"""``python -m dask_diag`` is ``dask-diag``."""

from __future__ import annotations

from dask_diag.cli.main import main

if __name__ == "__main__":
    main(prog_name="dask-diag")
