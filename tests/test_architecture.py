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
LAYERS = {
    "_version": set(),
    "errors": set(),
    "config": set(),
    "columns": set(),
    "formatting": set(),
    "validation": set(),
    "import_optional": {"errors"},
    "model": {"model", "columns", "errors", "import_optional"},
    "capture": {"capture", "errors"},
    "builders": {"builders", "profilers", "capture", "model", "columns", "errors"},
    "storage": {"storage", "model", "columns", "errors", "_version"},
    "analysis": {"analysis", "model", "columns", "errors", "import_optional", "formatting"},
    "views": {
        *("views", "analysis", "model", "columns"),
        *("errors", "import_optional", "formatting", "_version"),
    },
    "profilers": {"profilers", "capture", "errors", "formatting", "validation"},
    "cli": {"cli", "errors", "_version"},
    "__init__": {"profilers", "capture", "config", "errors", "_version"},
    "__main__": {"cli"},
}
# Steps up that are taken when a method is called, and only then.
STEPS_UP = {
    ("__init__.py", "cli"),
    ("builders/incremental.py", "profilers"),
    ("builders/incremental_stacks.py", "profilers"),
    ("builders/incremental_tasks.py", "profilers"),
    ("builders/recording.py", "profilers"),
    ("capture/system/environment.py", "formatting"),
    ("model/recording.py", "storage"),
    ("model/recording.py", "views"),
    ("profilers/base.py", "views"),
    ("profilers/cache.py", "builders"),
    ("profilers/group.py", "builders"),
    ("profilers/group.py", "model"),
    ("profilers/group.py", "views"),
    ("profilers/memory.py", "analysis"),
    ("profilers/memory.py", "builders"),
    ("profilers/memory.py", "views"),
    ("profilers/performance_report.py", "views"),
    ("profilers/profiler.py", "analysis"),
    ("profilers/profiler.py", "builders"),
    ("profilers/progress.py", "builders"),
    ("profilers/record.py", "builders"),
    ("profilers/record.py", "model"),
    ("profilers/record.py", "storage"),
    ("profilers/resources.py", "builders"),
    ("profilers/sampling.py", "analysis"),
    ("profilers/sampling.py", "builders"),
    ("profilers/sampling.py", "views"),
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
        if target in LAYERS[room]:
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
        if path.name == "dask_internals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name in private], path
