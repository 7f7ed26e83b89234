"""dask-diag summary and compare, and what all commands have in common."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

import dask_diag
from dask_diag.cli.main import main
from dask_diag.storage.write import save
from tests.recordings import on_an_idle_machine
from tests.test_compare import around, recording

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    import dask

    folder = tmp_path_factory.mktemp("recordings")
    # What dask imports when it first computes is not recorded: it takes long on a busy machine.
    dask.delayed(sum)([1, 2]).compute(scheduler="sync")
    with dask_diag.Profiler() as prof, dask_diag.SamplingProfiler() as sprof:
        dask.delayed(sum)([1, 2]).compute(scheduler="sync")
    save(on_an_idle_machine(prof.recording), folder / "run.diag")
    both = dask_diag.Recording.combine([prof.recording, sprof.recording])
    save(on_an_idle_machine(both), folder / "sampled.diag")
    save(recording(load=around(1.0, 0.1, 50, 1), add=[1.0] * 9), folder / "before.diag")
    save(recording(load=around(1.5, 0.1, 50, 2), add=[1.0] * 9), folder / "after.diag")
    return folder


@pytest.fixture
def files(recordings):
    shutil.copytree(recordings, ".", dirs_exist_ok=True)


def diag(*arguments):
    """A command in this process; streams, status and environment of one are in test_cli_output."""
    done = CliRunner().invoke(main, arguments)
    return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)


def test_summary_shows_what_summary_shows(files):
    done = diag("summary", "run.diag")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{dask_diag.summary(dask_diag.load('run.diag'))}\n"


HOSTILE_ARGUMENTS = [
    (["nosuch"], "No such command"),
    ([""], "No such command"),
    (["-h"], "No such option"),
    *(([command], "Missing argument") for command in ("run", "summary", "report", "export")),
    (["compare", "run.diag"], "expected two recordings, BEFORE and AFTER"),
    *(([command, "--x"], "No such option") for command in ("run", "summary", "report", "export")),
    *(([command, ""], "expected the name of a file") for command in ("summary", "report")),
    (["report", "run.diag", "-o", ""], "expected the name of a file"),
    (["export", "run.diag"], "--format"),
    (["export", "run.diag", "--format", "x"], "'perfetto', 'speedscope', "),
    (["export", "run.diag", "-o", "x.y"], "or name the format: 'perfetto', "),
    *(
        (["compare", "run.diag", "run.diag", "--fail-above", text], "expected a share")
        for text in ("", "%", "nan%", "-5%", "10", "inf%", "\x1b[2J", "10%%", "--", "1e999%")
    ),
    *(
        (["run", "--interval", text, "-c", "1"], "expected seconds above 0, such as 0.5, found ")
        for text in ("", "0", "-1", "nan", "inf", "x", "1e400", "\x1b[2J", "½")
    ),
    *(
        (["run", "--metric", text, "-c", "1"], "expected MODULE:FUNCTION")
        for text in ("", ":", "os", "os:", ":path")
    ),
    (["run", "--metric", "os:no\x1b", "-c", "1"], "cannot import os:no\\x1b"),
    (["run", "-m", ""], "cannot run the module ''"),
    (["run", ""], "cannot run ''"),
    (["run", "missing.py"], "cannot run missing.py: there is no such file"),
    (["run", "bad\x1b[2Jname.py"], "bad\\x1b[2Jname.py"),
    (["run", "-m", "no_such_module"], "cannot run the module no_such_module"),
    (["run", "-m", "no.such"], "cannot run the module no.such"),
    (["run", "-m", "-c", "x"], "not both"),
    (["run", "--live", "--repeat", "2", "-c", "1"], "--live or --repeat"),
    (["run", "--no-such-option"], "; see dask-diag run --help"),
]


@pytest.mark.parametrize(("arguments", "expected"), HOSTILE_ARGUMENTS)
def test_wrong_arguments_are_a_line_that_says_what_was_expected(
    files, arguments, expected, monkeypatch
):
    # `run` sets both for its program.
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = sorted(Path().iterdir())
    done = CliRunner().invoke(main, arguments, prog_name="dask-diag")
    assert done.exit_code == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert expected in line
    assert line.isprintable()
    assert sorted(Path().iterdir()) == before


def test_ctrl_c_anywhere_in_click_ends_by_the_signal(monkeypatch):
    def end_as(number):
        raise SystemExit(-number)

    def count_and_interrupt(context):
        nonlocal calls
        calls += 1
        if calls == interrupted:
            raise KeyboardInterrupt
        return enter(context)

    monkeypatch.setattr("dask_diag.cli.output.end_as", end_as)
    enter = click.Context.__enter__
    monkeypatch.setattr(click.Context, "__enter__", count_and_interrupt)
    statuses = []
    for interrupted in range(1, 99):
        calls = 0
        statuses.append(CliRunner().invoke(main, ["summary", "missing"]).exit_code)
        if calls < interrupted:
            break
    assert statuses == [-signal.SIGINT] * (len(statuses) - 1) + [2]
    assert len(statuses) > 3


def test_report_writes_a_page_and_replaces_none_unasked(files):
    done = diag("report", "run.diag", "-o", "page.html")
    # A task that was switched out is said to be off the CPU.
    assert (done.returncode, done.stdout[:36], done.stderr) == (
        0,
        "report: page.html\nNothing stood out.",
        "",
    )
    assert " in 1 computation: 1 task on " in Path("page.html").read_text()
    again = diag("report", "run.diag", "-o", "page.html")
    assert again.returncode == 2
    assert "will not overwrite page.html; pass --force" in again.stderr
    assert diag("report", "run.diag", "-o", "page.html", "--force").returncode == 0
    for name, reported in (
        ("no/page.html", "make the directory"),
        ("/proc/page.html", "cannot write"),
    ):
        failed = diag("report", "run.diag", "-o", name)
        assert failed.returncode == 2
        assert reported in failed.stderr
        assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (["--format", "perfetto"], "sampled.perfetto.json"),
        (["--format", "speedscope"], "sampled.speedscope.json"),
        (["--format", "collapsed"], "sampled.collapsed"),
        (["--format", "json"], "sampled.json"),
        (["--format", "csv"], "sampled.csv"),
        (["--format", "csv", "-o", "tables"], "tables/tasks.csv"),
        (["-o", "other.trace.json"], "other.trace.json"),
    ],
)
def test_export_writes_what_is_asked_for(files, options, written):
    done = diag("export", "sampled.diag", *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"export: {written.split('/')[0]}\n"
    assert Path(written).is_file()
    again = diag("export", "sampled.diag", *options)
    assert again.returncode == 2
    assert "will not overwrite" in again.stderr
    assert diag("export", "sampled.diag", *options, "--force").returncode == 0


def test_export_says_that_there_is_nothing_to_write(files):
    for name in ("speedscope", "collapsed"):
        done = diag("export", "run.diag", "--format", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no stack samples to write" in done.stderr
        assert "dask-diag run" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    with dask_diag.Profiler() as prof:
        pass
    save(prof.recording, "empty.diag")
    done = diag("export", "empty.diag", "--format", "csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no tasks were recorded" in done.stderr


def test_compare_shows_what_changed(files):
    done = diag("compare", "before.diag", "after.diag", "--html", "page.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert "slower" in done.stdout
    assert "before.diag → after.diag" in done.stdout
    assert '<tr class="slower">' in Path("page.html").read_text()
    again = diag("compare", "before.diag", "after.diag", "--html", "page.html")
    assert (again.returncode, again.stdout) == (2, "")
    assert "will not overwrite page.html; pass --force" in again.stderr
    assert diag("compare", "before.diag", "after.diag", "--html", "page.html", "-f").returncode == 0


@pytest.mark.parametrize(
    ("one", "other", "share", "status"),
    [
        ("before", "after", "10%", 1),
        ("before", "after", "60%", 0),
        ("after", "before", "0%", 0),
        ("before", "before", "0%", 0),
    ],
)
def test_fail_above(one, other, share, status, files):
    done = diag("compare", f"{one}.diag", f"{other}.diag", "--fail-above", share)
    assert done.returncode == status
    assert ("longer by more than 10%: total, load" in done.stderr) == bool(status)


def test_help_shows_the_exit_status():
    done = diag("--help")
    assert done.returncode == 0
    assert "Exit status" in done.stdout
    for command in ("run", "summary", "compare"):
        assert command in done.stdout
        assert diag(command, "--help").returncode == 0
    # Whole sentences: click cuts those that are longer than a line.
    assert "..." not in done.stdout.partition("Commands:")[2].partition("Exit status")[0]
    assert diag("--version").stdout == f"dask-diag, version {dask_diag.__version__}\n"
    assert diag("no-such").returncode == 2


def test_a_gate_does_not_pass_what_is_not_whole(files):
    with dask_diag.record("long.diag"):
        pass
    done = diag("compare", "before.diag", "long.diag", "--fail-above", "10%")
    assert done.returncode == 2
    assert "there are no tasks in it" in done.stderr
    content = Path("after.diag").read_bytes()
    Path("cut.diag").write_bytes(content[: len(content) - 40])
    assert diag("compare", "before.diag", "cut.diag").returncode == 0
    done = diag("compare", "before.diag", "cut.diag", "--fail-above", "10%")
    assert done.returncode == 2
    assert "cannot judge cut.diag: it is truncated; record it again" in done.stderr
    flipped = bytearray(content)
    flipped[-30] ^= 4
    Path("flipped.diag").write_bytes(flipped)
    done = diag("compare", "before.diag", "flipped.diag", "--fail-above", "10%")
    assert done.returncode == 2
    assert "cannot judge flipped.diag: it is damaged; record it again" in done.stderr


def test_a_metric_that_speaks_of_damage_does_not_fail_the_gate():
    import dask

    def metric(result):
        raise ValueError("chunk is damaged" if result == 3 else "block was cut short, is truncated")

    for name in ("before.diag", "after.diag"):
        with dask_diag.record(name, metric=metric) as run:
            for number in (1, 2):
                dask.delayed(sum)([number, 2]).compute(scheduler="sync")
        assert len(run.recording.notices) == 2
        loaded = dask_diag.load(name)
        assert (loaded.state, loaded.is_complete) == ("complete", True)
        assert len(loaded.notices) == 2
    done = diag("compare", "before.diag", "after.diag", "--fail-above", "100000%")
    assert (done.returncode, done.stderr) == (0, "")
