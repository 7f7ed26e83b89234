"""The rules of ARCHITECTURE.rst that a machine can check."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import dask_diag
from dask_diag import save
from dask_diag.cluster.shipping import SHIPPED

from .recordings import NOTHING

pytestmark = pytest.mark.once

PACKAGE = Path(dask_diag.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
TEXT = (PACKAGE.parent / "ARCHITECTURE.rst").read_text(encoding="utf-8")

BASICS = {"_version", "columns", "cursor", "errors", "files", "formatting"}
RECORDING = {"hooks", "capture", "sampling", "system", "cluster", "model", *BASICS}
READERS_OF_RECORDINGS = {"views", "analysis", "storage", "model", *BASICS}

# Leaves first.
LAYERS = {
    "_version": set(),
    "columns": {"errors"},
    "coffea": {"analysis"},
    "config": set(),
    "cursor": set(),
    "errors": set(),
    "files": {"errors"},
    "formatting": set(),
    "model": {"model", *BASICS},
    "hooks": {"hooks", "system", "capture", "model", *BASICS},
    "system": {"system", "model", *BASICS},
    "capture": RECORDING,
    "sampling": RECORDING - {"cluster"},
    "cluster": RECORDING,
    "storage": {"storage", "model", *BASICS},
    "analysis": {"analysis", "model", *BASICS},
    "views": READERS_OF_RECORDINGS - {"storage"},
    "profilers": {"profilers", "config", *RECORDING, *READERS_OF_RECORDINGS},
    "tuning": {"tuning", *READERS_OF_RECORDINGS},
    "live": {"live", *READERS_OF_RECORDINGS},
    "cli": {"cli", "live", "tuning", "profilers", *READERS_OF_RECORDINGS},
    "__init__": {"config", "cli", "tuning", "profilers", "capture", *READERS_OF_RECORDINGS},
    "__main__": {"cli"},
    "pytest_limits": {"profilers", "views", "analysis", "model", *BASICS},
}
"""Which layers each may import, inside functions and for types included. There is no exception."""


def layer_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def nodes_of(path):
    """All nodes of a file: most of the time of these tests is spent on finding them."""
    return list(ast.walk(tree_of(path)))


def imports(path):
    """Every module of the package that a file imports: in functions and for types, too."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name.split(".", maxsplit=1)[0] == "dask_diag":
                    yield name if name in MODULES else node.module
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.split(".")[0] == "dask_diag"]
            # A recording has methods that call public functions.
            yield from names if path.name != "recording.py" or names != ["dask_diag"] else ()


def module_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(["dask_diag", *parts]).removesuffix(".__init__")


MODULES = {module_of(path) for path in FILES}


def test_imports_go_one_way():
    for path in FILES:
        for module in imports(path):
            target = module.split(".")[1] if "." in module else "__init__"
            assert target in LAYERS[layer_of(path)], f"{path} imports {module}"


def test_no_imports_run_in_a_circle():
    # A package's own file has the arrows of its own imports, not of what lies in it.
    arrows = {module_of(path): set(imports(path)) & MODULES for path in FILES}
    while leaves := {module for module, targets in arrows.items() if not targets}:
        arrows = {m: targets - leaves for m, targets in arrows.items() if m not in leaves}
    assert not arrows, f"circles among {sorted(arrows)}"


def test_no_module_touches_anothers_private_names():
    public = {"_asdict", "_fields", "_make", "_replace", "_repr_html_", "_repr_mimebundle_"}
    for path in FILES:
        nodes = nodes_of(path)
        own = {n.name for n in nodes if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        own |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and _is_self(n)}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dask_diag"):
                names = [a.name for a in node.names if a.name.startswith("_") and a.name[1] != "_"]
                assert names in ([], ["_version"]), f"{path}: imports {names}"
            of_dask = "hooks" in path.parts
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not of_dask:
                private = not node.attr.startswith("__") and node.attr not in public | own
                assert not private or _is_of_the_interpreter(node), f"{path}: {node.attr}"


def _is_self(node):
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _is_of_the_interpreter(node):
    return isinstance(node.value, ast.Name) and node.value.id in (
        "sys",
        "os",
        "atexit",
        "threading",
    )


HEAVY = "bokeh pandas pyarrow distributed numpy rich psutil cachey asyncio ctypes decimal"
PROFILING = """
from dask_diag import Profiler, ProgressBar, CacheProfiler, ResourceProfiler
from dask.threaded import get
with Profiler(), CacheProfiler(), ResourceProfiler(), ProgressBar(minimum=10):
    get({"a-0": (int,)}, "a-0")
"""
READING = """
from dask_diag.cli.main import main
for command in ("summary", "throughput", "what-if", "export -o run.csv", "compare run.diag"):
    main([*command.split(), "run.diag"], standalone_mode=False)
"""
PROGRAMS = [
    ("import dask", "import dask_diag", HEAVY, 4),
    ("import dask", "from dask_diag import Profiler", HEAVY, 43),
    ("", PROFILING, "bokeh rich pandas distributed dask_diag.views dask_diag.analysis", 999),
    ("", READING, "dask distributed bokeh", 999),
    (
        "",
        "from dask_diag import export, load\nexport(load('run.diag'), 'x.json')",
        "bokeh rich",
        999,
    ),
    ("", "import dask_diag.cli.main", "numpy bokeh rich pandas distributed", 999),
    ("", "import dask_diag.cluster.preload", "distributed", 999),
    ("import pytest", "import dask_diag_pytest", "dask dask_diag", 0),
]
"""What ran before, a program, what it must not load, and how many of our modules it may."""


def loaded_by(code, before=""):
    """The modules that code loads."""
    looks = "import json, sys; before = set(sys.modules)"
    prints = "print(json.dumps(sorted(set(sys.modules) - before)))"
    words = [sys.executable, "-c", "\n".join([before, looks, code, prints])]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.leaves_files
@pytest.mark.parametrize(("before", "code", "heavy", "most"), PROGRAMS)
def test_a_program_loads_nothing_that_it_does_not_need(before, code, heavy, most, tmp_path):
    save(NOTHING, "run.diag")
    loaded = loaded_by(code, before)
    assert not {*heavy.split()} & {*loaded, *(name.split(".")[0] for name in loaded)}
    assert len([name for name in loaded if name.split(".")[0] == "dask_diag"]) <= most


def test_a_name_that_is_loaded_when_first_used_is_what_its_module_has():
    values = {name: getattr(dask_diag, name) for name in dask_diag.__all__}
    assert [name for name, v in values.items() if getattr(v, "__name__", name) != name] == []


def test_the_pytest_plugin_imports_one_module_of_the_package():
    tree = ast.parse((PACKAGE.parent / "dask_diag_pytest.py").read_text())
    everywhere = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert {m for m in everywhere if m.startswith("dask")} == {"dask_diag.pytest_limits"}


def test_only_one_folder_touches_dasks_internals():
    private = (
        "dask._task_spec",
        "dask.local",
        "dask.order",
        "dask.core",
        "dask._expr",
        "dask.highlevelgraph",
    )
    for path in FILES:
        if "hooks" in path.parts:
            continue
        for node in nodes_of(path):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not [name for name in names if name in private], path


def test_distributed_is_imported_on_clusters_only():
    """By what is shipped there; or for types, in one folder."""
    importing = {
        str(path.relative_to(PACKAGE))
        for path in FILES
        for node in _imports_at_run_time(tree_of(path))
        if "distributed" in [name.split(".")[0] for name in _names_of(node)]
    }
    assert importing <= {f"{name}.py" for name in SHIPPED}


def test_what_is_shipped_to_a_scheduler_imports_what_was_shipped_before_it():
    shipped, names = set(), set()
    for name in SHIPPED:
        tree = ast.parse((PACKAGE / f"{name}.py").read_text())
        of_package = {
            node.module
            for node in _imports_at_run_time(tree)
            if isinstance(node, ast.ImportFrom) and node.module.startswith("dask_diag")
        }
        assert of_package <= shipped, name
        shipped.add(f"dask_diag.{name}".replace("/", "."))
        # They share one namespace.
        own = _defined_in(tree)
        assert not own & names, name
        names |= own


def _defined_in(tree):
    own = {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        for target in [*getattr(node, "targets", []), getattr(node, "target", None)]:
            own |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} if target else set()
    return own - {"__all__"}


def _imports_at_run_time(tree):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        yield from _imports_at_run_time(node)


def _names_of(node):
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]


def test_the_architecture_names_what_there_is():
    sources = [*FILES, *PACKAGE.rglob("*.js"), PACKAGE.parent / "setup.cfg"]
    known_words = {w for path in sources for w in re.findall(r"\w+", path.read_text("utf-8"))}
    known_words |= {w for path in PACKAGE.rglob("*") for w in re.findall(r"\w+", path.name)}
    literals = {text for text in re.findall(r"``([^`]+)``", TEXT) if "*" not in text}
    files = {text for text in literals if (PACKAGE.parent / text).is_file()}
    names = {name for text in literals - files for name in re.findall(r"[A-Za-z_]\w+", text)}
    assert names <= known_words
