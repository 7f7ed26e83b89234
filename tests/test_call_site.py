"""The line of the user's code that called dask: in the recording, and in the head of a report."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import dask
import numpy as np
import pytest

from dask_diag import Profiler, load, record, report
from dask_diag.analysis.facts import Analysis
from dask_diag.columns import Categorical
from dask_diag.views.names import computing_lines, first_line
from dask_diag.views.report.components import Code
from dask_diag.views.report.header import head

from .recordings import example, filled_table

SCHEDULERS = ("synchronous", "threads", "processes")


def program(file, text):
    """A function of a program, as if it were in a file."""
    names = {}
    exec(compile(text, f"/srv/ada/{file}", "exec"), names)
    return names["run"]


def sites(profiler):
    return profiler.recording.computations.call_site.tolist()


def with_sites(*call_sites):
    times = np.arange(len(call_sites), dtype=float)
    columns = {
        "call_site": Categorical.of(call_sites),
        "called": times,
        "start": times,
        "stop": times,
    }
    return replace(example(0), computations=filled_table("computations", columns))


def facts(recording):
    return head(Analysis(recording)).facts


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_line_is_that_of_the_users_call(scheduler):
    text = "import dask\n\ndef run(work, how):\n    return dask.compute(\n        work, scheduler=how)\n"
    run = program("known.py", text)
    with Profiler() as profiler:
        run(dask.delayed(int)(1), scheduler)
    assert sites(profiler) == ["known.py:4"]


def test_a_library_between_the_user_and_dask_is_passed_over():
    library = program("site-packages/lib.py", "def run(work):\n    return work.compute()\n")
    run = program("user.py", "def run(library, work):\n\n    library(work)\n")
    with Profiler() as profiler:
        run(library, dask.delayed(int)(1))
        thread = threading.Thread(target=library, args=(dask.delayed(int)(1),))
        thread.start()
        thread.join()
    # With no line of the user's on the stack it is the library's.
    assert sites(profiler) == ["user.py:3", "lib.py:2"]


def test_a_scheduler_that_is_called_directly_has_a_line_too():
    run = program("direct.py", "def run(get):\n    return get({'x': (int, 1)}, 'x')\n")
    with Profiler() as profiler:
        run(dask.get)
    assert sites(profiler) == ["direct.py:2"]


def test_a_cell_of_a_notebook_has_its_number(monkeypatch):
    compilerop = pytest.importorskip("IPython.core.compilerop")
    compiler = compilerop.CachingCompiler()
    text = "import dask\n\ndef run(work):\n    work.compute()\n"
    file, names = compiler.cache(text, number=7), {}
    exec(compiler(text, file, "exec"), names)
    shell = SimpleNamespace(compile=compiler)
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    with Profiler() as profiler:
        names["run"](dask.delayed(int)(1))
        dask.delayed(int)(2).compute()
    cell, in_this_file = sites(profiler)
    assert cell == "In[7]:4"
    assert in_this_file.startswith("test_call_site.py:")


@pytest.mark.leaves_files
def test_a_file_has_the_line_and_no_folder_also_without_code(tmp_path):
    run = program("known.py", "def run(work):\n    work.compute()\n")
    with record(tmp_path / "run.diag", code=False):
        run(dask.delayed(int)(1))
    recording = load(tmp_path / "run.diag")
    assert recording.computations.call_site.tolist() == ["known.py:2"]
    assert "known.py:2" in facts(recording)


@pytest.mark.parametrize(
    ("call_sites", "shown"),
    [
        (["a.py:3"], "called at a.py:3"),
        (["a.py:3", "b.py:1", "a.py:3"], "called at a.py:3 and 1 more"),
        (["", "In[2]:1"], "called in a notebook, In[2], line 1"),
        (["a.py:3", "b.py:1", "c.py:1"], "called at a.py:3 and 2 more"),
    ],
)
def test_the_head_of_a_report_names_the_first_call_and_counts_the_others(call_sites, shown):
    assert facts(with_sites(*call_sites)).split(" · ")[-1] == shown


@pytest.mark.parametrize("call_sites", [[], [""], ["", ""]])
def test_the_head_says_nothing_where_no_call_is_known(call_sites):
    assert "called " not in facts(with_sites(*call_sites))


def test_the_line_that_computed_is_marked_in_the_calling_code():
    recording = with_sites("run.py:12", "run.py:14", "other.py:13", "run.py:12", "", "In[3]:2")
    assert computing_lines(recording, "run.py") == [12, 14]
    assert computing_lines(recording, "run.py:10, in main") == [12, 14]
    assert computing_lines(recording, "In[3]") == [2]
    assert first_line("run.py:10, in main") == 10
    assert first_line("run.py") == first_line("In[3]") == 1
    code = Code("run.py", "a\nb\nc\nd", 10, [12, 14])
    assert [line for line, is_marked in code.lines if is_marked] == ["c"]
    assert code.heading == "run.py: computed in line 12"
    assert Code("run.py", "a").heading == "run.py"


@pytest.mark.leaves_files
def test_the_mark_is_on_the_code_of_a_line_and_not_on_its_indentation(tmp_path):
    rows = {
        "section": ["calling code"],
        "name": ["run.py"],
        "value": ["def run(x):\n    return x.compute()"],
    }
    recording = replace(with_sites("run.py:2"), environment=filled_table("environment", rows))
    page = report(recording, tmp_path / "page.html").read_text()
    assert "def run(x):\n    <mark>return x.compute()</mark></code>" in page
