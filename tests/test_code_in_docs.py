"""The code of the documentation runs as it stands; what is copied first also runs again."""

import inspect
import re
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import dask
import pytest

import dask_diag

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]


HOW_TO = [
    "docs/record.rst",
    "docs/profilers.rst",
    "docs/worker_time.rst",
    "docs/hot_lines.rst",
    "docs/memory.rst",
]
ELSEWHERE = {
    "README.rst": "below: it runs twice",
    "docs/quickstart.rst": "below: it runs twice",
    "docs/cluster.rst": "tests/test_cluster_docs.py",
    **dict.fromkeys(HOW_TO, "tests/test_commands_in_docs.py"),
}
NOT_RUN = {
    f"docs/{page}.rst: from coffea": "coffea and its files are the reader's"
    for page in ("throughput", "coming_from_roastcoffea")
}
"""Where a block starts like this, and why it is left out."""
QUICKER = {
    "(4_000, 4_000)": "(400, 400)",
    "chunks=(500, 500)": "chunks=(50, 50)",
    "chunks=(1_000, 1_000)": "chunks=(100, 100)",
    "power(800), power(900)": "power(80), power(90)",
    "range(1_000_000)": "range(10_000)",
    "live=True": "live=False",  # The viewer is a process of its own: tests/test_live_process.py.
}
"""What is smaller here than in the documentation."""
PAGES = [
    name
    for name in sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "README.rst", *ROOT.glob("docs/**/*.rst"))
    )
    if name not in ELSEWHERE and ".. code-block:: python" in (ROOT / name).read_text("utf-8")
]


def code_blocks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?: .*\n|\n)+)", text, re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks]


@pytest.mark.leaves_files
@pytest.mark.parametrize("name", ["README.rst", "docs/quickstart.rst"])
def test_the_first_code_runs_and_runs_again(name, monkeypatch, capsys):
    signature, pages = inspect.signature(dask_diag.report), []
    # Pages are written by other tests: they take longer than all else here.

    def report(*given, **options):
        pages.append(signature.bind(*given, **options))

    monkeypatch.setattr(dask_diag, "report", report)
    (code,) = code_blocks(name)
    for _ in range(2):
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    recording = dask_diag.load("run.diag")
    assert set(recording.tasks.outcome.tolist()) == {"ok"}
    assert "tasks" in capsys.readouterr().out
    assert [page.arguments["path"] for page in pages] == ["run.html", "run.html"]
    assert pages[1].arguments["overwrite"]


@pytest.mark.leaves_files
@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch):
    distributed = pytest.importorskip("dask.distributed")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    # Workers are threads of this process, and those of pools: a process takes a second to start.
    in_threads = partial(distributed.Client, processes=False, dashboard_address=":0")
    monkeypatch.setattr(distributed, "Client", in_threads)
    names = {"__name__": "__main__"}
    with ThreadPoolExecutor(2) as pool, dask.config.set(pool=pool):
        for block in code_blocks(name):
            if any(f"{name}: {block}".startswith(left_out) for left_out in NOT_RUN):
                continue
            for large, small in QUICKER.items():
                block = block.replace(large, small)
            exec(compile(block, name, "exec"), names)
