"""The page on clusters: its code runs as it stands, and what it shows is there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
import webbrowser
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("bokeh")

import dask.distributed
from distributed import Client

from dask_diag import load

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

ROOT = Path(__file__).parents[1]


def code_blocks(language):
    text = (ROOT / "docs" / "cluster.rst").read_text(encoding="utf-8")
    blocks = re.findall(rf"^\.\. code-block:: {language}\n\n((?: .*\n|\n)+)", text, re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks]


def test_its_code_records_what_runs_on_a_cluster(monkeypatch, capsys):
    small = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    monkeypatch.setattr(dask.distributed, "Client", partial(Client, **small))
    monkeypatch.setattr(webbrowser, "open", lambda *args, **kwargs: True)
    (code,) = code_blocks("python")
    names = {"__name__": "__main__"}
    exec(compile(code, "cluster.rst", "exec"), names)
    recording = names["prof"].recording
    assert recording.tasks.function.tolist() == ["score"] * 100
    assert recording.notices == ()
    assert "100 tasks" in capsys.readouterr().out


def test_its_commands_record_and_show_the_example():
    (commands,) = code_blocks("bash")
    lines = [shlex.split(line) for line in commands.splitlines() if line]
    assert [line[:2] for line in lines] == [["dask-diag", "run"], ["dask-diag", "summary"]]
    for _, *arguments in lines:
        arguments = [
            str(ROOT / argument) if argument.startswith("examples/") else argument
            for argument in arguments
        ]
        done = subprocess.run(
            [sys.executable, "-m", "dask_diag", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    assert "total" in done.stdout
    assert load("cluster.diag").tasks.outcome.tolist() == ["ok"] * 33
