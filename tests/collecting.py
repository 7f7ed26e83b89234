"""What pytest imports before the first test: no file that is left out, none rewritten twice."""

from __future__ import annotations

import contextlib
import gc
import importlib
import re
from pathlib import Path

import pytest

MARKS_OF_FILE = re.compile(r"^pytestmark = (\[.*?^\]|.*?$)", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"pytest\.mark\.(\w+)")


def pytest_ignore_collect(collection_path, config):
    """A file all of whose tests are left out by their mark is not imported, which takes long."""
    if collection_path.suffix == ".py" and left_out(collection_path, config.option.markexpr):
        return True
    return None


def left_out(path, expression):
    """Whether an expression of marks refuses each test of a file, by the marks in its text."""
    if not re.fullmatch(r"(not )?\w+( and (not )?\w+)*", expression):
        return False
    text = path.read_text()
    terms = set(expression.split(" and "))
    marks_in_text = set(MARK.findall(text))
    if "retried" in text:
        # See `pytest_collection_modifyitems`.
        marks_in_text.add("truth")
    if not {term for term in terms if not term.startswith("not ")} <= marks_in_text:
        return True
    (marks,) = MARKS_OF_FILE.findall(text) or [""]
    return not {f"not {mark}" for mark in MARK.findall(marks)}.isdisjoint(terms)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """No garbage is looked for meanwhile: a fifth of the time went into that, and all stays."""
    gc.disable()
    try:
        import_in_turns(session.config)
        return (yield)
    finally:
        gc.enable()


def import_in_turns(config):
    """Processes that collect all tests at the same time each begin with other files.

    In a new checkout pytest rewrites each file, which takes most of the time of a collection; so
    each process rewrites a part, and finds the other parts done.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    paths = sorted(Path(__file__).parent.glob("test_*.py"))
    names = [path.stem for path in paths if not left_out(path, config.option.markexpr)]
    first = len(names) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for name in names[first:] + names[:first]:
        # What fails here fails again when it is collected, and is reported then.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(f"tests.{name}")
