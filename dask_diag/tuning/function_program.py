"""A function as a program: ``python -m dask_diag.tuning.function_program FOLDER`` calls it.

Threads of native libraries and dask's configuration are set up when a process starts, so a function
too is tried in processes of its own. It travels by cloudpickle, in a file that only this user can
write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

_FUNCTION, _PATH, _RESULT = "function.pickle", "path.json", "result.json"


def write_function(function: Callable[[], Any], folder: Path) -> None:
    """Write a function to the folder for the child process."""
    import cloudpickle

    (folder / _FUNCTION).write_bytes(cloudpickle.dumps(function))
    # Modules next to the caller's script are imported from where the caller does.
    (folder / _PATH).write_text(json.dumps(sys.path), encoding="utf-8")


def read_result(folder: Path) -> tuple[float, str]:
    """The seconds of the last call, and a digest of the result."""
    result = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
    return result["wall"], result["output"]


def _call(folder: Path) -> None:
    import cloudpickle
    from dask.base import tokenize

    sys.path[:] = json.loads((folder / _PATH).read_text(encoding="utf-8"))
    function = cloudpickle.loads((folder / _FUNCTION).read_bytes())
    start = perf_counter()
    value = function()
    wall = perf_counter() - start
    result = json.dumps({"wall": wall, "output": tokenize(value)})
    (folder / _RESULT).write_text(result, encoding="utf-8")


if __name__ == "__main__":
    _call(Path(sys.argv[1]))
