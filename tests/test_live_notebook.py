"""%%diag --live: a picture below the cell while it computes, which the saved notebook keeps."""

import time
from pathlib import Path

import pytest

pytest.importorskip("IPython", reason="IPython is not installed: pip install .[test]")

from dask_diag.cli import magic
from dask_diag.cli.magic import LiveCell
from dask_diag.storage.write import Writer

from .kernels import run_notebook
from .live_chunks import chunk, provisional
from .test_live_process import end_viewers
from .test_notebook import COMPUTE, shell, shown  # noqa: F401
from .test_saved_picture import image_in

pytestmark = [
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs Linux"),
]


def test_pictures_come_while_the_cell_computes_and_the_last_has_no_token(monkeypatch):
    pictures, texts = [], []

    class Handle:
        def update(self, data, raw):
            pictures.append(data["text/html"])
            texts.append(data["text/plain"])

    monkeypatch.setattr(magic, "display", lambda *args, **kwargs: Handle())
    monkeypatch.setattr(magic, "_PERIOD", 0.02)
    try:
        with Writer("run.diag") as writer:
            writer.append(chunk(10, 12.0), provisional(10))
            cell = LiveCell("run.diag")
            for finished in (10, 20, 30):
                writer.append(chunk(10, 12.0 + finished), provisional(finished))
                deadline = time.monotonic() + 30
                while not pictures or f"{finished} of 50 tasks" not in pictures[-1]:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            assert "token=" in pictures[-1]
            writer.append(chunk(10, 60.0))
        cell.finish()
    finally:
        end_viewers("run.diag")
    assert "complete" in pictures[-1]
    assert "token" not in pictures[-1]
    assert len(pictures[-1]) < 20_000
    assert "\ncomplete: " in texts[-1]
    assert "<" not in texts[-1]


def test_a_cell_without_a_file_has_one_of_its_own(shell, tmp_path):  # noqa: F811
    before = set(tmp_path.iterdir())
    result, _ = shell("%%diag run --live -q\n" + COMPUTE)
    (magics,) = [m for m in shell.shell.magics_manager.registry.values() if hasattr(m, "diag")]
    folder = magics._folder.name
    try:
        assert result.success, result.error_in_exec
        assert [path.name for path in Path(folder).iterdir()] == ["cell.diag"]
        assert set(tmp_path.iterdir()) == before
    finally:
        end_viewers(f"{folder}/cell.diag")
        magics._folder.cleanup()


def test_a_viewer_that_does_not_start_leaves_the_cell_as_it_is(shell, monkeypatch):  # noqa: F811
    def fail(path):
        raise OSError("no processes left")

    monkeypatch.setattr(magic, "LiveCell", fail)
    result, captured = shell("%%diag --live -q -o run.diag\n" + COMPUTE + "total + 4")
    assert result.result == 7
    assert "no processes left" in captured.stderr + captured.stdout


CELL = """%%diag --live -q -o run.diag
import time, dask
delayed = [dask.delayed(time.sleep)(0.05) for _ in range(60)]
_ = dask.compute(*delayed, scheduler="threads", num_workers=1)
"""


def test_a_saved_notebook_has_the_last_state_and_not_the_token(tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
    cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext dask_diag", CELL)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    try:
        run_notebook(notebook, tmp_path)
    finally:
        end_viewers(tmp_path / "run.diag")
    (output,) = notebook.cells[1].outputs
    html = output.data["text/html"]
    assert "60 tasks of 1 computation" in html
    assert "<path" in image_in(html)
    text = nbformat.writes(notebook)
    assert "token" not in text
    assert len(text) < 20_000
