"""Notebooks: %%diag in a real shell, and the example in a real kernel."""

import os
import re
import sys
from pathlib import Path

import pytest

import dask_diag

pytest.importorskip("IPython", reason="IPython is not installed: pip install .[test]")

from .kernels import run_notebook

pytestmark = [
    pytest.mark.once,
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
EXAMPLE = Path(__file__).parent.parent / "examples" / "notebook.ipynb"
COMPUTE = "import dask; total = dask.delayed(sum)([1, 2]).compute(scheduler='sync')\n"


QUICK_REPORT = (
    "dask_diag.views.report.page.report",
    lambda recording, path, *args, **kwargs: Path(path).write_text("a page"),
)


@pytest.fixture
def shell(monkeypatch, tmp_path):
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    InteractiveShell.clear_instance()
    # A history would hold its database open.
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "dask_diag")

    def run(text):
        with capture_output() as captured:
            result = shell.run_cell(text)
        return result, captured

    run.names, run.shell = shell.user_ns, shell
    yield run
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


def shown(captured):
    return "".join(str(output.data) for output in captured.outputs) + captured.stdout


def test_a_cell_is_recorded_and_its_value_is_shown(shell):
    result, captured = shell("%%diag run\n" + COMPUTE + "total + 4")
    assert result.success
    assert result.result == 7
    assert shell.names["total"] == 3
    assert isinstance(shell.names["run"], dask_diag.Recording)
    assert shell.names["run"].tasks["function"].tolist() == ["sum"]
    assert " in 1 computation: 1 task on " in shown(captured)


def test_a_cell_without_a_value_and_with_magics_in_it(shell):
    result, captured = shell("%%diag -q\n%time total = 5\nx = !echo hello")
    assert result.success, result.error_in_exec
    assert result.result is None
    assert (shell.names["total"], list(shell.names["x"])) == (5, ["hello"])
    assert "computation" not in shown(captured)
    assert len(shell.names["_diag"].tasks) == 0


def fails(*args, **kwargs):
    raise OSError(28, "No space left on device\x1b[2J")


WHAT_FAILS = {
    "the recording could not be made": "dask_diag.profilers.record.ProfilerGroup.recording",
    "the summary could not be shown": "dask_diag.views.summary.summary_parts",
    "the report could not be written": "dask_diag.views.report.page.report",
}


@pytest.fixture(params=WHAT_FAILS)
def failing(request, monkeypatch):
    """What of dask_diag fails, when a cell has ended; pages that do not are empty, as that is quicker."""
    name = WHAT_FAILS[request.param]
    monkeypatch.setattr(*QUICK_REPORT)
    monkeypatch.setattr(name, property(fails) if name.endswith("recording") else fails)
    monkeypatch.setattr(sys, "argv", ["nb.py"])
    return request.param


@pytest.mark.parametrize("raises", [True, False])
def test_what_fails_of_dask_diag_replaces_neither_value_nor_error_of_a_cell(shell, failing, raises):
    ends = "1 / 0" if raises else "total + 4"
    result, captured = shell(f"%%diag --html page.html\n{COMPUTE}{ends}")
    error = result.error_in_exec
    assert (type(error), result.result) == (
        (ZeroDivisionError, None) if raises else (type(None), 7)
    )
    assert not raises or error.__context__ is None
    assert captured.stdout.count("Traceback") == raises
    (line,) = captured.stderr.splitlines()
    assert line.startswith(f"%%diag: {failing}: OSError(28, ")
    assert line.isprintable()
    # One that fails keeps none of the others from being made.
    assert ("_diag" in shell.names) == Path("page.html").exists() or "report" in failing


@pytest.mark.parametrize(
    ("ends", "error"), [("1 / 0", ZeroDivisionError), ("total", KeyboardInterrupt)]
)
def test_an_interrupted_report_does_not_replace_what_a_cell_raises(ends, error, shell, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("dask_diag.views.report.page.report", interrupted)
    result, _ = shell(f"%%diag run -q --html page.html\n{COMPUTE}{ends}")
    assert isinstance(result.error_in_exec, error)
    assert len(shell.names["run"].tasks) == 1


@pytest.mark.parametrize("option", ["-o", "--html"])
@pytest.mark.parametrize("path", [".", "no/where", "n" * 300, "/proc/x", "/dev/null"])
def test_a_path_that_cannot_be_written_is_a_line_before_anything_runs(option, path, shell):
    result, captured = shell(f"%%diag {option} {path}\nran = True")
    assert not result.success
    assert "ran" not in shell.names
    (line,) = (shown(captured) + captured.stderr).splitlines()
    assert line.startswith("UsageError: ")


def without_colours(text):
    return re.sub(r"\x1b\[[\d;]*m", "", text)


WAITS = "import asyncio\nasync def waits(value):\n    await asyncio.sleep(0.01)\n    return value\n"


def test_a_cell_awaits_as_cells_do(shell):
    body = f"{WAITS}kept = await waits(1)\n{COMPUTE}await waits(kept + total)"
    result, captured = shell(f"%%diag run\n{body}")
    assert result.success, result.error_in_exec
    assert (result.result, shell.names["kept"]) == (4, 1)
    assert len(shell.names["run"].tasks) == 1
    result, captured = shell(f"%%diag run\n{COMPUTE}await waits(1)\n1 / 0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert len(shell.names["run"].tasks) == 1
    text = without_colours(captured.stdout)
    assert "1 / 0" in text
    assert not {"notebook.py", "base_events"} & set(re.findall(r"\w+(?:\.py)?", text))


def test_where_a_loop_runs_await_is_refused_in_a_line_before_anything_runs(shell):
    import asyncio

    async def kernel():
        return shell(f"%%diag -o run.diag\nran = True\n{WAITS}await waits(1)")

    result, captured = asyncio.run(kernel())
    assert not result.success
    assert "%%diag does not support top-level await" in captured.stderr + shown(captured)
    assert "Traceback" not in captured.stderr + shown(captured)
    assert "ran" not in shell.names
    assert not Path("run.diag").exists()


def test_a_syntax_error_is_shown_before_anything_is_recorded(shell):
    result, _ = shell("%%diag -o run.diag\nif True print()")
    assert isinstance(result.error_in_exec, SyntaxError)
    assert not Path("run.diag").exists()


def test_files_of_a_cell_are_replaced_and_no_others(shell, monkeypatch):
    options = "-o run.diag --html page.html --interval 0.01"
    assert shell(f"%%diag {options}\n{COMPUTE}")[0].success
    assert len(dask_diag.load("run.diag").tasks) == 1
    assert "bokeh" in Path("page.html").read_text()
    assert shell(f"%%diag {options}\n{COMPUTE}\n# changed")[0].success
    with dask_diag.record("other.diag"):
        pass
    result, captured = shell("%%diag -o other.diag\ntotal = 'ran'")
    assert not result.success
    assert "will not overwrite other.diag; pass --force" in shown(captured) + captured.stderr
    assert shell.names["total"] == 3
    monkeypatch.setattr(*QUICK_REPORT)
    assert shell(f"%%diag {options} --force\n{COMPUTE}")[0].success
    assert Path("page.html").read_text() == "a page"


def test_nothing_is_written_but_what_is_asked_for(shell, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["nb.py"])
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    before = {*os.listdir()}
    assert shell(f"%%diag --html nb.html\n{COMPUTE}")[0].success
    assert shell(f"%%diag run\n{COMPUTE}")[0].success
    assert {*os.listdir()} - before == {"nb.html"}
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("1x", "name of a variable"),
        ("class", "name of a variable, found 'class'"),
        ("None", "name of a variable, found 'None'"),
        ("--interval 0", "--interval: expected seconds between samples"),
        ("--interval nan", "--interval: expected seconds between samples"),
        ("-o no/where.diag", "make the dir"),
        ("-o 'run.diag", "No closing quotation"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(options, message, shell):
    result, captured = shell(f"%%diag {options}\nran = True")
    assert not result.success
    assert message in shown(captured) + captured.stderr
    assert "Traceback" not in shown(captured) + captured.stderr
    assert "ran" not in shell.names


@pytest.mark.parametrize("columns", ["20", "120"])
def test_help_is_shown_and_nothing_runs(columns, shell, monkeypatch):
    # As wide as the terminal that the notebook was started in.
    monkeypatch.setenv("COLUMNS", columns)
    result, captured = shell("%%diag run -h\nran = True")
    assert result.success
    text = " ".join(captured.stdout.split())
    assert text.startswith("%%diag [")
    assert "write the recording to this file" in text
    assert not {"run", "ran", "_diag"} & set(shell.names)


def test_the_example_runs(tmp_path, monkeypatch):
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    notebook = nbformat.read(EXAMPLE, as_version=4)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLE.parent.parent))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    run_notebook(notebook, tmp_path)
    outputs = {cell.id: str(cell.get("outputs", "")) for cell in notebook.cells}
    assert "tasks on" in outputs["diag"]
    assert "data:image/svg+xml" in outputs["diag"]
    assert "javascript" not in outputs["diag"]
    assert "execute_result" in outputs["diag"]
    assert "thread-cpu" in outputs["activities"]
    assert "<table" in outputs["frame"]
    assert "tasks on" in outputs["save"]
    assert "truncated" not in outputs["compare"]
    assert len(dask_diag.load(tmp_path / "run.diag").tasks) > 10


def calling_code(recording):
    return [
        (row["name"], row["value"])
        for row in recording.environment.to_dicts()
        if row["section"] == "calling code"
    ]


def test_the_cell_is_noted_without_its_secrets_or_left_out(shell, monkeypatch, tmp_path):
    # What runs the shell is no code of the user's.
    launcher = tmp_path / "launcher.py"
    launcher.write_text("launched = True\n")
    monkeypatch.setattr("sys.argv", [str(launcher)])
    monkeypatch.setenv("API_TOKEN", "")
    body = f"password = 'hunter2'  # seen\n%env API_TOKEN=hunter2\n{COMPUTE}"
    name = f"In[{shell.shell.execution_count}]"
    line = "%%diag run -q -o run.diag --html 'the page.html'"
    assert shell(f"{line}\n{body}")[0].success
    for recording in (shell.names["run"], dask_diag.load("run.diag")):
        ((cell, code),) = calling_code(recording)
        assert cell == name
        # The cell as it was given: lines have their numbers, and options are part of it.
        first, *others = code.split("\n")
        assert first == "%%diag run -q -o run.diag --html '…'"
        assert others == ["password = '…'  # seen", "%env API_TOKEN=…", COMPUTE.rstrip()]
        assert recording.computations.call_site.tolist() == [f"{name}:4"]
    page = Path("the page.html").read_text()
    assert "# seen" in page
    assert "hunter2" not in page
    assert shell(f"%%diag run -q -o none.diag --no-code\n{body}")[0].success
    for recording in (shell.names["run"], dask_diag.load("none.diag")):
        assert calling_code(recording) == []
        assert len(recording.environment)


def test_remarks_on_the_profilers_are_shown_with_verbose(shell):
    """The summary of a cell names the option, so the magic must have it."""
    for options, is_shown in (("", False), ("-v", True), ("--verbose", True)):
        result, captured = shell(f"%%diag run {options}\n{COMPUTE}")
        assert result.success
        # How hooks were calibrated is among what is not shown without it.
        assert ("as calibrated before the first" in shown(captured)) == is_shown


def test_the_summary_comes_after_the_value_of_a_cell_and_after_its_traceback(shell):
    """A cell's value can be read without scrolling: the summary is as high as a window."""
    _, captured = shell(f"%%diag run\n{COMPUTE}print('printed')\ntotal + 4")
    assert captured.stdout.split() == ["printed", "Out[0]:", "7"]
    (summary,) = captured.outputs
    assert "1 task on" in summary.data["text/html"]
    assert "data:image/svg+xml" in summary.data["text/html"]
    assert not shell("total")[1].outputs
    assert len(shell(f"%%diag run\n{COMPUTE}1 / 0")[1].outputs) == 1
    assert not shell(f"%%diag run -q\n{COMPUTE}1 / 0")[1].outputs
    assert not shell("total")[1].outputs


# With names of their own, tasks run in the same order each time: the one that fails is not the last.
FAILS = """

def half(n):
    return 1 / n

dask.compute([dask.delayed(half)(n, dask_key_name=f"half-{n + 20:02}") for n in range(9, -21, -1)], scheduler="sync")
"""


def test_an_error_is_shown_as_without_the_magic_and_then_how_far_it_came(shell):
    """The traceback has the cell's own number and lines, and no frame of the magic."""
    number = shell.shell.execution_count
    result, captured = shell(f"%%diag run\nimport dask{FAILS}")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    text = without_colours(captured.stdout)
    assert f"In[{number}], line 7" in text
    assert f"In[{number}], line 5, in half(n)" in text
    assert not [word for word in ("get_ipython", "skipping hidden", "magic.py") if word in text]
    assert shell.names["run"].computations.call_site.tolist() == [f"In[{number}]:7"]
    assert f"In[{number}]:5 in half" in shell.names["run"].tasks.error_location.tolist()
    (output,) = captured.outputs
    assert output.data["text/html"].count("<details>") >= 1
    text = " ".join(output.data["text/plain"].split())
    match = re.fullmatch(
        r"(\d+) of 30 tasks, ended by ZeroDivisionError\. .* in 1 computation: \d+ tasks? on 1 "
        r"worker, 1 failed, (\d+) more not run",
        text,
    )
    assert match, text
    done, never = match.groups()
    assert int(done) + 1 + int(never) == 30
    assert len(output.data["text/plain"].splitlines()) < 8
    # The next error is shown by IPython itself again.
    assert shell.shell.custom_exceptions == ()
    assert "line 1" in without_colours(shell("1 / 0")[1].stdout)


def test_a_users_own_handler_of_errors_shows_them(shell):
    handled = []
    shell.shell.set_custom_exc(
        (ZeroDivisionError,), lambda self, kind, *more, **others: handled.append(kind)
    )
    shell("%%diag -q\n1 / 0")
    shell("%%diag -q\n[][1]")
    shell("1 / 0")
    assert handled == [ZeroDivisionError, ZeroDivisionError]


def test_a_link_below_a_cell_opens_its_report_which_names_the_cell(shell, monkeypatch):
    number = shell.shell.execution_count
    _, captured = shell(f"%%diag run --html a&b.html\n{COMPUTE}")
    html = captured.outputs[0].data["text/html"]
    assert 'href="a%26b.html"' in html
    page = Path("a&b.html").read_text()
    assert f"called in a notebook, In[{number}], line 2" in page
    assert 'press "Trust HTML"' in page
    monkeypatch.setattr(QUICK_REPORT[0], fails)
    _, captured = shell(f"%%diag run --force --html a&b.html\n{COMPUTE}")
    assert "href" not in captured.outputs[0].data["text/html"]
    assert "the report could not be written" in captured.stderr
