"""What commands write, wherever stdout and stderr lead, whatever they can show, in any environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import dask_diag
from dask_diag import save
from dask_diag.cli.main import main
from dask_diag.cli.output import _IN_ASCII, print_result
from tests.commands import COMMAND, environment, run
from tests.programs import SEARCHED
from tests.test_cli_run import script
from tests.test_compare import around, recording

pytestmark = [
    pytest.mark.once,
    pytest.mark.leaves_files,
    pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full"),
]

RESULTS = {
    "summary": ["summary", "run.diag"],
    "export": ["export", "-f", "run.diag", "--format", "csv"],
    "compare": ["compare", "before.diag", "after.diag"],
}
REPORT = ["report", "-f", "run.diag"]
READ = {"summary": RESULTS["summary"], "report": REPORT, "compare": RESULTS["compare"]}
HELP = ["--help"]
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
WRITTEN = [
    # A result, a message, and what click itself writes.
    *((arguments, {}) for arguments in (RESULTS["summary"], RESULTS["export"], HELP)),
    (RESULTS["summary"], UNBUFFERED),
    (HELP, UNBUFFERED),
]
NOWHERE = {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"}
NOTHING = {"PYTHONPATH": SEARCHED, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    import dask

    folder = tmp_path_factory.mktemp("recordings")
    with dask_diag.record(folder / "run.diag"):
        dask.delayed(sum)([1, 2]).compute(scheduler="sync")
    save(recording(load=around(1.0, 0.1, 50, 1)), folder / "before.diag")
    save(recording(load=around(1.5, 0.1, 50, 2)), folder / "after.diag")
    return folder


@pytest.fixture(autouse=True)
def files(recordings):
    for name in ("run.diag", "before.diag", "after.diag"):
        os.symlink(recordings / name, name)


@pytest.fixture(scope="module")
def results(recordings):
    """What commands print in UTF-8, in this process."""
    before = os.getcwd()
    os.chdir(recordings)
    try:
        return {name: CliRunner().invoke(main, READ[name]).stdout_bytes for name in READ}
    finally:
        os.chdir(before)


@pytest.fixture
def full():
    with open("/dev/full", "w") as stream:
        yield stream


@pytest.fixture
def nobody_reads():
    """The end of a pipe whose reader has gone, as ``head`` goes."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


def diag(*arguments, closed=(), env=None, **streams):
    settings = {**streams, "env": environment() if env is None else env}
    if not closed:
        return run(*arguments, **settings)
    shell = ["sh", "-c", 'exec "$@" ' + " ".join(f"{number}>&-" for number in closed), "sh"]
    return subprocess.run(
        [*shell, *COMMAND, *arguments],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings},
        timeout=120,
        check=False,
    )


SEVERAL = """
import json, sys
from dask_diag.cli.main import main

for words in json.loads(sys.argv[1]):
    try:
        main(words, prog_name="dask-diag")
    except SystemExit as ended:
        sys.stdout.flush()
        print("\\n== status", ended.code or 0, flush=True)
"""


def printed_by(commands, env):
    """What each of several commands prints, in one process: what it starts with is the same."""
    words = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
    done = subprocess.run(words, capture_output=True, env=env, timeout=120, check=True)
    assert done.stderr == b""
    *printed, after = done.stdout.split(b"\n== status 0\n")
    assert (len(printed), after) == (len(commands), b"")
    return printed


def the_line(done):
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.decode().splitlines()
    return line


@pytest.mark.parametrize(("arguments", "variables"), WRITTEN)
def test_a_stdout_that_is_full(arguments, variables, full):
    done = diag(*arguments, stdout=full, env=environment(**variables))
    assert the_line(done) == "Error: cannot write output: No space left on device"


@pytest.mark.parametrize("arguments", RESULTS.values(), ids=RESULTS)
def test_a_stdout_that_is_closed(arguments):
    assert the_line(diag(*arguments, closed=[1])) == "Error: cannot write output: stdout is closed"


@pytest.mark.parametrize(("arguments", "variables"), WRITTEN)
def test_a_reader_who_has_had_enough(arguments, variables, nobody_reads):
    done = diag(*arguments, stdout=nobody_reads, env=environment(**variables))
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_gate_judges_also_if_nobody_reads(nobody_reads, full):
    gate = ["compare", "before.diag", "after.diag", "--fail-above"]
    assert diag(*gate, "10%", "--html", "page.html", stdout=nobody_reads).returncode == 1
    assert Path("page.html").exists()
    assert diag(*gate, "90%", stdout=nobody_reads).returncode == 0
    assert diag(*gate, "10%", stderr=full).returncode == 1
    assert diag(*gate, "10%", closed=[2]).returncode == 1


def test_an_error_that_nobody_reads_has_its_status(full, nobody_reads):
    error, usage = ["summary", "missing"], ["nonsense"]
    assert diag(*error, stderr=nobody_reads).returncode == 2
    assert diag(*error, stdout=full, stderr=full).returncode == 2
    assert diag(*error, closed=[0, 1, 2]).returncode == 2
    assert diag(*usage, stderr=full).returncode == 2
    assert diag(*usage, closed=[2]).returncode == 2


@pytest.mark.parametrize(
    ("ends", "variables", "reader"),
    [
        ("", {}, "full"),
        ("", UNBUFFERED, "nobody_reads"),
        ("sys.exit(3)", {}, "nobody_reads"),
        ("sys.exit(3)", UNBUFFERED, "full"),
    ],
)
def test_a_program_ends_as_without_us_where_its_stdout_is_full(ends, variables, reader, request):
    name = script(f"compute()\nprint('result')\n{ends}")
    stdout = request.getfixturevalue(reader)
    plain = subprocess.run(
        [sys.executable, name],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=environment(**variables),
        check=False,
    )
    own = diag("run", name, stdout=stdout, env=environment(**variables))
    assert own.returncode == plain.returncode != 0
    assert b"1 computation: 11 tasks" in own.stderr
    assert len(dask_diag.load("script.diag").tasks) == 11


def test_what_is_reported_of_a_program_is_not_on_its_stdout(full):
    name = script("compute()\nprint('result')")
    done = diag("run", "--html", "page.html", name, closed=[2])
    assert (done.returncode, done.stdout) == (0, b"result\n")
    assert Path("page.html").exists()
    done = diag("run", "-f", name, stderr=full)
    assert (done.returncode, done.stdout) == (0, b"result\n")


def test_a_unit_is_never_a_question_mark(monkeypatch):
    from io import BytesIO, TextIOWrapper

    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding="ascii"))
    print_result("5.2 µs → 3 ms … ф")
    assert sys.stdout.buffer.getvalue() == b"5.2 us -> 3 ms ... ?\n"


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {**NOWHERE, "TERM": "dumb"},
        {"COLUMNS": "x", "LANG": "xx_XX.nonsense", "TERM": "", "HOME": "", "TZ": "nowhere"},
        {"LC_ALL": "C.UTF-8", "FORCE_COLOR": "1", "TERM": "xterm-256color"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", **NOWHERE},
    ],
    ids=["nothing", "missing", "nonsense", "colors", "ascii on stdout", "ascii everywhere"],
)
def test_results_do_not_depend_on_the_environment(variables, results):
    variables = {**NOTHING, **variables}
    in_ascii = {"PYTHONIOENCODING", "PYTHONUTF8"} & variables.keys()
    # A page is the dearest: it is written where there is least to write it with.
    names = [*READ] if "PYTHONUTF8" in in_ascii else sorted(RESULTS.keys() & READ.keys())
    printed = printed_by([READ[name] for name in names], variables)
    for name, output in zip(names, printed, strict=True):
        if in_ascii:
            text = results[name].decode().translate(str.maketrans(_IN_ASCII))
            assert output.decode("ascii").split() == text.split()
        else:
            assert output == results[name]
    if not in_ascii:
        done = diag("run", "-f", script("print(compute())"), env=variables)
        assert (done.returncode, done.stdout) == (0, b"55\n")
        assert b"1 computation: 11 tasks" in done.stderr
        assert b"\x1b" not in done.stderr


IGNORES_CTRL_C = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]


def test_a_program_for_which_ctrl_c_is_ignored_goes_on():
    """As in the background of a script."""
    name = script("compute()\nprint('waits', flush=True)\nprint(sys.stdin.read())")
    for python_runs in ([sys.executable], [*COMMAND, "run"]):
        child = subprocess.Popen(
            [*IGNORES_CTRL_C, *python_runs, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
        )
        assert child.stdout.readline() == "waits\n"
        child.send_signal(2)
        stdout, stderr = child.communicate("went on", timeout=60)
        assert (child.returncode, stdout) == (0, "went on\n")
    assert "1 computation: 11 tasks" in stderr
