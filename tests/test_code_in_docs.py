"""What a reader copies first runs as it stands, and again in the same folder."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import pytest

import dask_diag

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]


def code_blocks(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?: .*\n|\n)+)", text, re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks]


@pytest.mark.leaves_files
@pytest.mark.parametrize("name", ["README.rst", "docs/get_started.rst"])
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
