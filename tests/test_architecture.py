"""The rules of ARCHITECTURE.rst that a machine can check."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import dask_diag

PACKAGE = Path(dask_diag.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

# What a room may import of the package, when its modules are imported. Leaves first.
ALLOWED = {
    "_version": set(),
    "config": set(),
    "errors": set(),
    "units": set(),
    "optional": {"errors"},
    "columns": set(),
    "table": {"columns", "errors", "optional"},
    "recording": {"table", "errors"},
    "combining": {"columns", "recording", "table"},
    "capture": {"capture", "errors", "units"},
    "freezing": {"freezing", "capture", "columns", "table", "recording", "errors"},
    "storage": {"storage", "columns", "table", "recording", "errors", "_version"},
    "analysis": {"analysis", "columns", "table", "recording", "errors", "optional", "units"},
    "views": {
        *("views", "analysis"),
        *("columns", "table", "recording", "errors", "optional", "units", "_version"),
    },
    "__init__": {"capture", "config", "errors", "_version"},
    "cli": {"cli", "errors", "_version"},
    "__main__": {"cli"},
}
# Steps up that are taken when a method is called, and only then.
STEPS_UP = {
    ("__init__.py", "cli"),
    ("capture/all_profilers.py", "freezing"),
    ("capture/all_profilers.py", "recording"),
    ("capture/all_profilers.py", "views"),
    ("capture/cache.py", "freezing"),
    ("capture/diagnostic.py", "views"),
    ("capture/memory.py", "analysis"),
    ("capture/memory.py", "freezing"),
    ("capture/memory.py", "views"),
    ("capture/performance_report.py", "views"),
    ("capture/profiler.py", "analysis"),
    ("capture/profiler.py", "freezing"),
    ("capture/progress.py", "freezing"),
    ("capture/record.py", "freezing"),
    ("capture/record.py", "recording"),
    ("capture/record.py", "storage"),
    ("capture/record.py", "table"),
    ("capture/resources.py", "freezing"),
    ("capture/sampling.py", "analysis"),
    ("capture/sampling.py", "freezing"),
    ("capture/sampling.py", "views"),
    ("cli/compare.py", "analysis"),
    ("cli/compare.py", "storage"),
    ("cli/compare.py", "views"),
    ("cli/export.py", "storage"),
    ("cli/export.py", "views"),
    ("cli/notebook.py", "capture"),
    ("cli/notebook.py", "views"),
    ("cli/report.py", "analysis"),
    ("cli/report.py", "storage"),
    ("cli/report.py", "views"),
    ("cli/run.py", "capture"),
    ("cli/run.py", "views"),
    ("cli/summary.py", "storage"),
    ("cli/summary.py", "views"),
    ("recording.py", "combining"),
    ("recording.py", "storage"),
    ("recording.py", "views"),
}


def room_of(path):
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else parts[0][:-3]


def imports(path):
    """(module, at import time) for every import of the package in a file."""
    tree = ast.parse(path.read_text())
    late = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            late.update(id(child) for child in ast.walk(node))
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            late.update(id(child) for child in ast.walk(node))
            for child in ast.walk(node):
                child.for_types = True
    for node in ast.walk(tree):
        if getattr(node, "for_types", False):
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dask_diag"):
            yield node.module, id(node) not in late
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("dask_diag"):
                    yield alias.name, id(node) not in late


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    name = str(path.relative_to(PACKAGE))
    room = room_of(path)
    for module, at_import in imports(path):
        target = module.split(".")[1] if "." in module else "__init__"
        if target in ALLOWED[room]:
            continue
        assert not at_import, f"{name} imports {module}"
        if room == "cli":
            # A command imports what it needs when it is called.
            continue
        assert (name, target) in STEPS_UP, f"{name} reaches up to {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_is_for(path):
    tree = ast.parse(path.read_text())
    if not tree.body:
        return
    assert ast.get_docstring(tree)


def test_every_public_name_has_a_docstring():
    for name in dask_diag.__all__:
        value = getattr(dask_diag, name)
        if name != "__version__":
            assert value.__doc__, name
            for attribute, member in vars(value).items() if isinstance(value, type) else ():
                if not attribute.startswith("_") and (
                    callable(member) or isinstance(member, property)
                ):
                    assert member.__doc__, f"{name}.{attribute}"


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(done.stdout.splitlines()[-1])


HEAVY = ["bokeh", "pandas", "pyarrow", "distributed", "numpy", "rich", "psutil", "cachey"]


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, json, dask; before = set(sys.modules); import dask_diag; "
    loaded = run(
        code + f"print(json.dumps([m for m in {HEAVY} if m in set(sys.modules) - before]))"
    )
    assert loaded == []


def test_profiling_loads_no_views():
    code = """
import sys, json
from dask_diag import Profiler, ProgressBar, CacheProfiler, ResourceProfiler
from dask.threaded import get
with Profiler(), CacheProfiler(), ResourceProfiler(), ProgressBar(minimum=10):
    get({"a-0": (int,)}, "a-0")
print(json.dumps([m for m in ("bokeh", "rich", "pandas", "distributed", "dask_diag.views", "dask_diag.analysis") if m in sys.modules]))
"""
    assert run(code) == []


def test_only_one_file_touches_dasks_internals():
    private = (
        "dask._task_spec",
        "dask.local",
        "dask.order",
        "dask.core",
        "dask._expr",
        "dask.highlevelgraph",
    )
    for path in FILES:
        if path.name == "scheduler.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name in private], path
