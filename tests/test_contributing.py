"""CONTRIBUTING.rst names targets, files, functions and variables of scripts that exist."""

import re
from pathlib import Path

import pytest

import dask_diag

pytestmark = pytest.mark.once

PACKAGE = Path(dask_diag.__file__).parent
ROOT = PACKAGE.parent
TEXT = (ROOT / "CONTRIBUTING.rst").read_text(encoding="utf-8")
LITERALS = sorted(set(re.findall(r"``([^`]+)``", TEXT)))
PATHS = [text for text in LITERALS if re.fullmatch(r"[\w./]*(/|\.(py|rst|html|md|sh))", text)]
PLACEHOLDERS = {"CODE", "NAME", "plot_NAME", "demo", "docs", "_build", "FILE"}
"""What a reader puts a name in place of, and what only appears when it is made."""


@pytest.mark.parametrize("path", [p for p in PATHS if not PLACEHOLDERS & set(re.split(r"\W", p))])
def test_paths_exist(path):
    assert any((folder / path).exists() for folder in (ROOT, PACKAGE, PACKAGE / "views/exports"))


@pytest.mark.parametrize("target", re.findall(r"``make ([\w-]+)``", TEXT))
def test_targets_of_make_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_names_are_in_the_package():
    files = [*PACKAGE.rglob("*.py"), ROOT / "tests" / "matrix.sh"]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    words = set(re.findall(r"\w+", source))
    literals = [text for text in LITERALS if text not in PATHS and not text.startswith("make ")]
    names = {name for text in literals for name in re.findall(r"[A-Za-z_]\w+", text)}
    assert names - PLACEHOLDERS <= words
