"""Python environments in which a program is tried: their versions, and how it is recorded there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dask_diag.errors import DiagnosticError

_SECONDS = 60
"""Most seconds in which an interpreter has to answer."""
_ASKED = """
import importlib.metadata, json, platform, sys
sys.path.insert(0, sys.argv[1])
missing = ""
try:
    import dask_diag.cli.run
    with dask_diag.record(sys.argv[1] + "/try.diag", overwrite=True) as tried:
        pass
    missing = "; ".join(said for said in tried.recording.notices if "No module named" in said)
except Exception as error:
    missing = str(error)
versions = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
print(json.dumps({"python": platform.python_version(), "missing": missing, "versions": versions}))
"""
_FIRST = ("python", "dask", "distributed", "numpy", "pandas", "pyarrow", "xarray", "zarr")
"""The versions that most often explain a difference."""
_MOST_NAMES = 8


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter and the packages of its environment.

    Attributes
    ----------
    path : str
    package : str
        Folder that has this package, for an interpreter whose environment need not have it; empty
        for the interpreter that runs this.
    versions : mapping of str to str
        Version of Python, and of each installed package.
    """

    path: str
    package: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_record(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment variables of a recorded run."""
        if not self.package:
            return dict(environment)
        path = [self.package, *filter(None, [environment.get("PYTHONPATH", "")])]
        # Nothing is written beside the files of this package.
        return {**environment, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}


THIS_ONE = Interpreter(sys.executable)


@contextmanager
def interpreters(paths: Sequence[str]) -> Iterator[list[Interpreter]]:
    """The interpreters of some paths, or only that which runs this; for the time of a block.

    Raises
    ------
    DiagnosticError
        If a path is no Python interpreter, or programs cannot be recorded in its environment.
    """
    if not paths:
        yield [THIS_ONE]
        return
    with tempfile.TemporaryDirectory(prefix="dask_diag-") as folder:
        package = os.path.dirname(os.path.abspath(sys.modules["dask_diag"].__file__ or ""))
        try:
            os.symlink(package, os.path.join(folder, "dask_diag"))
        except OSError:
            shutil.copytree(package, os.path.join(folder, "dask_diag"))
        yield [_asked(path, folder) for path in paths]


def _asked(path: str, folder: str) -> Interpreter:
    command = [path, "-B", "-c", _ASKED, folder]
    try:
        answer = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=True
        )
        said = json.loads(answer.stdout)
        missing, version = said["missing"], said["python"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise DiagnosticError(
            f"python: expected a Python interpreter, such as venv/bin/python; {path!r} is none, or "
            f"does not start ({type(error).__name__})"
        ) from None
    if missing:
        raise DiagnosticError(
            f"python: programs cannot be recorded with {path} (Python {version}): {missing}; "
            f"install what is missing there, with {path} -m pip install"
        )
    return Interpreter(path, folder, {"python": version, **said["versions"]})


def differing_versions(compared: Sequence[Interpreter]) -> list[str]:
    """Lines of a table of the versions that are not the same in all environments."""
    if len(compared) < 2:
        return []
    versions = [one.versions for one in compared]
    names = {name for known in versions for name in known}
    order = {name: place for place, name in enumerate(_FIRST)}
    differing = sorted(
        (name for name in names if len({known.get(name) for known in versions}) > 1),
        key=lambda name: (order.get(name.lower(), len(order)), name.lower()),
    )
    if not differing:
        return ["The environments have the same versions of all packages."]
    shown = [name for name in differing if name in order or all(name in v for v in versions)]
    rows = [("Versions that differ", *(one.path for one in compared))]
    rows += [(name, *(known.get(name, "-") for known in versions)) for name in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for one in compared:
        only = [name for name in differing if name not in shown and name in one.versions]
        if only:
            others = ", …" if len(only) > _MOST_NAMES else ""
            names_of_some = ", ".join(only[:_MOST_NAMES])
            lines.append(f"{len(only)} packages only in {one.path}: {names_of_some}{others}")
    return lines
