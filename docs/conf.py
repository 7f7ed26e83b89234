"""Settings of the documentation."""

import runpy
from pathlib import Path

from dask_diag import __version__, load, report

# columns.rst is generated from the schema.
runpy.run_path(str(Path(__file__).with_name("columns.py")), run_name="__main__")
# Pages of findings state the thresholds of the code.
setup = runpy.run_path(str(Path(__file__).with_name("thresholds.py")))["setup"]

# The reports of the stories, from their recordings.
REPORTS = Path(__file__).parent / "_build" / "static" / "stories"
REPORTS.mkdir(parents=True, exist_ok=True)
for recording in sorted(Path(__file__).parent.glob("stories/*.diag")):
    report(load(recording), REPORTS / f"{recording.stem}.html", overwrite=True)

project = "dask_diag"
copyright = "2026, dask_diag developers"
release = version = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
]
autosummary_generate = True
autodoc_typehints = "none"
# What dask and other profilers call, not the reader.
autodoc_default_options = {
    "exclude-members": "computation_ends, computation_starts, fault, follow, has_own_hooks, "
    "leave_clusters, results_on_clusters, scheduler_returns, share, sizes_of, tasks_start"
}
numpydoc_show_class_members = False
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static", "_build/static"]
html_title = "dask_diag"
