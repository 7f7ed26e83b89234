"""The paths of source files, as short as a reader needs them."""

from __future__ import annotations

import os
import re

__all__ = ["is_standard_library", "package_of", "short_path"]

_LIBRARY = re.compile(
    r"(?<=/)(?:site-packages|dist-packages|lib(?:64)?/python3[.\w]*)/", re.IGNORECASE
)
_HOME = re.compile(r"(?:/home/[^/]+|/Users/[^/]+|/root|[A-Za-z]:/Users/[^/]+)(?=/)")
_STANDARD_LIBRARY = re.compile(
    r"^<frozen |(?:/lib(?:64)?/python3[.\w]*|/python3?\d*/lib|^[a-z]:/.*/lib)/"
    r"(?!.*(?:site|dist)-packages/)",
    re.IGNORECASE,
)


def is_standard_library(file: str) -> bool:
    """Whether a source file belongs to Python; functions without a file do, too."""
    return not file or bool(_STANDARD_LIBRARY.search(file.replace("\\", "/")))


def short_path(file: str) -> str:
    """The path of a source file as imports name it, or from the home directory on."""
    path = file.replace("\\", "/")
    libraries = list(_LIBRARY.finditer(path))
    if libraries and libraries[-1].end() < len(path):
        return path[libraries[-1].end() :]
    own_home = os.path.expanduser("~").replace("\\", "/").rstrip("/")
    if own_home and path.startswith(own_home + "/"):
        return "~" + path[len(own_home) :]
    return _HOME.sub("~", path, count=1) if _HOME.match(path) else path


def package_of(path: str) -> str:
    """The package that a file of a library is in, by its short path; of another file, the file."""
    first, slash, _ = path.partition("/")
    return first if slash and first not in ("", "~", ".", "..") else path
