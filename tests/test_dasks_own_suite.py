"""dask's own tests of its diagnostics, from the installed dask, pointed at dask_diag."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import dask.diagnostics
import pytest

SUITE = Path(dask.diagnostics.__file__).parent / "tests"
OF_PRIVATE_HELPERS = {"test_unquote", "test_get_colors", "test_format_time"}


def load(name):
    source = (SUITE / name).read_text()
    changed = source.replace("from dask.diagnostics import", "from dask_diag import")
    changed = changed.replace(
        "from dask.diagnostics.profile_visualize import visualize",
        "from dask_diag import visualize",
    )
    assert changed != source
    spec = importlib.util.spec_from_loader(f"dasks_{name[:-3]}", loader=None)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    exec(compile(changed, SUITE / name, "exec"), module.__dict__)
    return {
        attribute: value
        for attribute, value in vars(module).items()
        if attribute.startswith("test_") and attribute not in OF_PRIVATE_HELPERS
    }


if not SUITE.exists():
    pytest.skip("the installed dask has no tests", allow_module_level=True)

for _file in ("test_profiler.py", "test_progress.py"):
    for _name, _test in load(_file).items():
        globals()[f"{_name}__{_file[5:-3]}"] = _test


def test_the_suite_was_found():
    tests = [name for name in globals() if name.startswith("test_") and "__" in name]
    assert len(tests) >= 20
