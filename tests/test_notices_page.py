"""The pages of notices, errors and settings have what the package has."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from dask_diag import errors
from dask_diag.errors import DiagnosticError

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "notices.rst").read_text(encoding="utf-8")
QUOTED = re.findall(r"^``([^`]+)``.*\n {3}\S", PAGE, flags=re.M)
"""The terms of definition lists: ``…`` stands for other text, ``N`` for a number."""


@cache
def texts():
    """Texts of the package, without the values of f-strings, in one line each."""
    found = []
    for path in (ROOT / "dask_diag").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value for part in node.values if isinstance(part, ast.Constant)]
                found.append("\0".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def phrases(message):
    """Three successive words each, without names and numbers that stand for others."""
    words = [word for part in re.split(r"…|\bN\b%?", message) for word in [*part.split(), ""]]
    triples = zip(words, words[1:], words[2:])
    return [" ".join(triple).strip(" :;,.()?") for triple in triples if all(triple)]


@pytest.mark.parametrize("message", QUOTED)
def test_a_message_is_one_of_the_package(message):
    # Some are put together from parts, such as "another process" and "is writing it".
    missing = [phrase for phrase in phrases(message) if phrase not in texts()]
    assert len(missing) <= 0.4 * len(phrases(message)), missing


def test_the_page_quotes_many_messages():
    assert len(QUOTED) > 40
    assert sum(len(phrases(message)) > 1 for message in QUOTED) > 40


def test_a_message_that_is_not_printed_is_noticed():
    missing = [phrase for phrase in phrases("the cat sat on a mat") if phrase not in texts()]
    assert len(missing) == 4


def test_the_page_has_each_error():
    classes = {name for name, value in vars(errors).items() if isinstance(value, type)}
    classes -= {"Any"}
    assert {name for name in classes if f"``{name}``" not in PAGE} <= {DiagnosticError.__name__}


def test_the_page_of_settings_has_each_key():
    page = (ROOT / "docs" / "configuration.rst").read_text(encoding="utf-8")
    settings = yaml.safe_load((ROOT / "dask_diag" / "diag.yaml").read_text(encoding="utf-8"))
    keys = [
        "diag.docs",
        "diag.control-groups",
        *(
            f"diag.{section}.{name}"
            for section in ("lines", "profile")
            for name in settings["diag"][section]
        ),
    ]
    assert set(settings["diag"]) == {"control-groups", "docs", "lines", "profile"}
    assert [key for key in keys if f"``{key}``" not in page] == []
