"""dask-diag summary and compare, and what all commands have in common."""

import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

import dask_diag
from dask_diag import save
from dask_diag.cli.main import main
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


def test_summary_shows_what_summary_shows(files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = diag("summary", "run.diag")
    assert (done.returncode, done.stderr) == (0, "")
    # In files and pipes no name is cut.
    uncut = dask_diag.summary(dask_diag.load("run.diag")).for_terminal(80, cuts_names=False)
    assert done.stdout == f"{uncut}\n"


WRONG = r"""
nosuch ~ '' => No such command
-h ~ run --x ~ summary --x ~ report --x ~ export --x => No such option
run ~ summary ~ report ~ export => Missing argument
compare run.diag => expected two recordings, BEFORE and AFTER
summary '' ~ report '' ~ report run.diag --html '' => expected the name of a file
export run.diag => --format
export run.diag --format x => 'perfetto', 'speedscope',
export run.diag -o x.y => or name the format: 'perfetto',
SHARE '' ~ SHARE % ~ SHARE nan% ~ SHARE -5% ~ SHARE inf% ~ SHARE \x1b[2J => expected a share
SHARE 10%% ~ SHARE -- ~ SHARE 1e999% => expected a share
SHARE 0.1 => such as 10%, found '0.1'; write 10% or 0.1%
SHARE 1 => such as 10%, found '1'; write 100% or 1%
SHARE 60 => such as 10%, found '60'; write 60%
EVERY '' ~ EVERY 0 ~ EVERY -1 ~ EVERY nan ~ EVERY inf => expected seconds above 0, such as 0.5, found
EVERY x ~ EVERY 1e400 ~ EVERY \x1b[2J ~ EVERY ½ => expected seconds above 0, such as 0.5, found
METRIC '' ~ METRIC : ~ METRIC os ~ METRIC os: ~ METRIC :path => expected MODULE:FUNCTION
METRIC os:no\x1b => cannot import os:no\x1b
run -m '' => cannot run the module ''
run '' => cannot run ''
run missing.py => cannot run missing.py: there is no such file
run bad\x1b[2Jname.py => bad\x1b[2Jname.py
run -m no_such_module => cannot run the module no_such_module
run -m no.such => cannot run the module no.such
run -m -c x => not both
run --live --repeat 2 -c 1 => --live or --repeat
run --no-such-option => ; see dask-diag run --help
"""
"""Commands, and what is reported of them; \\x1b is written as it is seen."""
SHORT = {
    "SHARE": "compare run.diag run.diag --fail-above WORD",
    "EVERY": "run --interval WORD -c 1",
    "METRIC": "run --metric WORD -c 1",
}


def wrong_arguments():
    for line in WRONG.strip().splitlines():
        commands, _, expected = line.partition(" => ")
        for command in commands.split("~"):
            first, *words = command.split()
            if first in SHORT:
                given = [words[0] if word == "WORD" else word for word in SHORT[first].split()]
            else:
                given = [first, *words]
            yield [word.strip("'").replace("\\x1b", "\x1b") for word in given], expected


@pytest.mark.parametrize(("arguments", "expected"), wrong_arguments())
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


def test_report_writes_a_page_and_replaces_nothing_but_pages(files):
    done = diag("report", "run.diag", "--html", "page.html")
    assert (done.returncode, done.stderr) == (0, "")
    # A task that was switched out is said to be off the CPU.
    assert done.stdout.startswith("report: page.html\n")
    assert " in 1 computation: 1 task on " in Path("page.html").read_text()
    # A page of ours can be made again from its recording; nobody knows what another one is.
    assert diag("report", "run.diag", "--html", "page.html").returncode == 0
    Path("page.html").write_text("<html>")
    again = diag("report", "run.diag", "--html", "page.html")
    assert again.returncode == 2
    assert "will not overwrite page.html; pass --force" in again.stderr
    assert diag("report", "run.diag", "--html", "page.html", "--force").returncode == 0


@pytest.mark.parametrize(
    ("options", "written"),
    [
        *((f"--format {name}", f"sampled.{name}") for name in ("collapsed", "json", "csv")),
        *((f"--format {name}", f"sampled.{name}.json") for name in ("perfetto", "speedscope")),
        ("--format csv -o tables", "tables/tasks.csv"),
        ("-o other.trace.json", "other.trace.json"),
    ],
)
def test_export_writes_what_is_asked_for(files, options, written):
    done = diag("export", "sampled.diag", *options.split())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"export: {written.split('/')[0]}\n"
    assert Path(written).is_file()


def test_compare_shows_what_changed(files):
    done = diag("compare", "before.diag", "after.diag", "--html", "page.html")
    assert (done.returncode, done.stderr) == (0, "page: page.html\n")
    assert "slower" in done.stdout
    assert "before.diag → after.diag" in done.stdout
    assert '<tr class="slower">' in Path("page.html").read_text()


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


@pytest.mark.parametrize(
    ("harm", "reported"),
    [
        ("empty", "there are no tasks in it"),
        ("cut", "cannot judge other.diag: it is truncated; record it again"),
        ("flipped", "cannot judge other.diag: it is damaged; record it again"),
    ],
)
def test_a_gate_does_not_pass_what_is_not_whole(files, harm, reported):
    content = bytearray(Path("after.diag").read_bytes())
    if harm == "empty":
        with dask_diag.record("other.diag"):
            pass
    else:
        content[-30] ^= 4 * (harm == "flipped")
        Path("other.diag").write_bytes(content[: -40 if harm == "cut" else None])
        assert diag("compare", "before.diag", "other.diag").returncode == 0
    done = diag("compare", "before.diag", "other.diag", "--fail-above", "10%")
    assert done.returncode == 2
    assert reported in done.stderr


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
