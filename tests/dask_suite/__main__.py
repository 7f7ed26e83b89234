"""Runs dask's tests with the package's profilers registered, and those that failed again, with dask's.

What fails with these only is a fault of this package; what fails with both is dask's, as tests are
that expect no callback to be active. It prints which ones these were.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import dask

FOLDER = Path(__file__).parent
DASK = Path(dask.__file__).parent
FILES = [
    *(f"tests/test_{name}.py" for name in ("base", "delayed", "threaded", "multiprocessing")),
    *(f"tests/test_{name}.py" for name in ("local", "callbacks", "cache", "traceback")),
    "bag/tests",
]
AT_LEAST = 300
"""Tests that are there, or the wrong ones are run."""


def failed(registered: str, cache: str, *arguments: str) -> set[str]:
    """Run tests of dask with callbacks registered, and name those that failed."""
    pytest = [str(Path(sys.executable).with_name("pytest")), "-c", str(FOLDER / "pytest.ini")]
    where = [f"--rootdir={DASK}", "-o", f"cache_dir={cache}"]
    environment = {**os.environ, "REGISTERED": registered, "PYTHONPATH": str(FOLDER)}
    done = subprocess.run([*pytest, *where, *arguments], env=environment, cwd=cache)
    if done.returncode > 1:
        sys.exit(f"dask's tests: pytest ended with status {done.returncode}")
    names = Path(cache, "v", "cache", "lastfailed")
    return set(json.loads(names.read_text())) if names.exists() else set()


def main() -> None:
    """Run those files, or the ones that are named, as ``tests/test_base.py``."""
    files = [str(DASK / name) for name in sys.argv[1:] or FILES]
    missing = [name for name in files if not os.path.exists(name)]
    if missing:
        sys.exit(f"dask's tests are NOT in the installed dask {dask.__version__}: {missing}")
    again = ["--last-failed", "--last-failed-no-failures", "none"]
    with tempfile.TemporaryDirectory() as cache:
        with_own = failed(
            "dask_diag", cache, "-n", "4", "--dist", "worksteal", "--junitxml=results.xml", *files
        )
        count = re.search(r'tests="(\d+)"', Path(cache, "results.xml").read_text())
        if count is None or int(count[1]) < (1 if sys.argv[1:] else AT_LEAST):
            sys.exit("dask's tests: most of them were not found")
        with_dasks = failed("dask", cache, *again, *files) if with_own else set()
        print("== fail with dask's profilers, too:", *sorted(with_dasks), sep="\n", flush=True)
        own = with_own - with_dasks
        if own:
            # Alone, once: a busy machine may have spoilt one.
            own &= failed("dask_diag", cache, *sorted(f"{DASK}/{name}" for name in own))
    if own:
        print("== fail with dask_diag's profilers only:", *sorted(own), sep="\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
