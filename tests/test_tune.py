"""tune: real child processes, the command line and the function."""

import math
import os
import pty
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

import dask_diag
from dask_diag.cli.main import main
from dask_diag.errors import DiagnosticError
from dask_diag.tuning import race
from dask_diag.tuning.candidates import candidates, more_workers, requested
from dask_diag.tuning.race import MIN_RUNS
from dask_diag.tuning.result import TuneResult
from dask_diag.tuning.settings import Setting, combined, filled, parameter_setting
from dask_diag.tuning.trials import ChildRunner, Program, run_child

from .commands import COMMAND, Command, environment
from .sleeping_tasks import sleeping
from .test_tune_race import recorded

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]

SLEEPS = """
import sys, time, dask
if __name__ == "__main__":
    tasks = [dask.delayed(time.sleep)(0.2) for n in range(12)]
    dask.compute(*tasks)
    print("done", *sys.argv[1:])
"""


def write(source, name="script.py"):
    Path(name).write_text(source)
    return name


def tune_here(*arguments, stderr=""):
    """Run the command in this process; its stdout."""
    done = CliRunner().invoke(main, ["tune", *arguments])
    assert (done.exit_code, done.stderr) == (0, stderr)
    return done.stdout


@pytest.fixture
def tuned(monkeypatch):
    """Run the command with the fewest runs of each setting; its stdout in one line."""
    monkeypatch.setattr(race, "LOOKS", (MIN_RUNS,))
    return lambda *arguments: " ".join(tune_here(*arguments).split())


@pytest.fixture
def _ends_when_proven(monkeypatch):
    """A setting that is proven to win is run no more, however wide the interval of its gain is.

    The proof is as strong as ever: on a quiet machine three runs give it, on a noisy one up to ten.
    """
    monkeypatch.setattr(race, "_NARROW", math.inf)


def child(code, timeout=60.0, **kwargs):
    with open("out", "wb") as stdout, open("err", "wb") as stderr:
        return run_child(
            [sys.executable, "-c", code],
            os.environ,
            timeout,
            stdout=stdout,
            stderr=stderr,
            **kwargs,
        )


def gone(pid):
    """Whether a process has ended; it may take a moment to be reaped by another."""
    for _ in range(500):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    return False


GRANDCHILDREN = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
inside = subprocess.Popen(sleep)
outside = subprocess.Popen(sleep, start_new_session={apart})
with open("pids.part", "w") as file:
    file.write(f"{{inside.pid}} {{outside.pid}}")
__import__("os").rename("pids.part", "pids")
{end}
"""


def pids():
    return list(map(int, Path("pids").read_text().split()))


def test_a_child_that_takes_too_long_is_ended_with_all_that_it_started():
    code = GRANDCHILDREN.format(apart=True, end="time.sleep(300)")
    ended = child(code, timeout=3.0)
    assert ended.timed_out
    assert ended.status == -signal.SIGKILL
    assert 3.0 <= ended.wall < 30.0
    assert all(map(gone, pids()))


def test_what_a_child_leaves_behind_is_ended():
    ended = child(GRANDCHILDREN.format(apart=False, end=""))
    assert (ended.status, ended.timed_out) == (0, False)
    assert all(map(gone, pids()))


def test_an_interrupted_run_is_ended_with_all_that_it_started(monkeypatch):
    def interrupt_when_started():
        while not Path("pids").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_when_started)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        child(GRANDCHILDREN.format(apart=True, end="time.sleep(300)"))
    thread.join()
    assert all(map(gone, pids()))


def test_a_run_has_its_time_status_output_and_check():
    name = write("import sys; print('x', *sys.argv[1:]); print('oh', file=sys.stderr); sys.exit(0)")
    runner = ChildRunner(Program("script", name, ["a"]), check="grep -q 'x a'")
    trial, again = (runner.run(Setting("s"), 60.0) for _ in range(2))
    assert (trial.status, trial.check, trial.error) == (0, 0, "")
    assert trial.output == again.output != ""
    assert 0 < trial.wall < 60
    other = ChildRunner(Program("script", name, ["b"]), check="grep -q 'x a'").run(
        Setting("s"), 60.0
    )
    assert (other.check, other.output == trial.output) == (1, False)
    failing = ChildRunner(Program("code", "print(1); raise KeyError('k')")).run(Setting("s"), 60.0)
    assert (failing.status, failing.error, failing.failed) == (1, "KeyError: 'k'", True)


def test_settings_reach_an_unchanged_program():
    name = write(SLEEPS.replace("0.2", "0.01"))
    runner = ChildRunner(Program("script", name))
    for setting, scheduler, workers in (
        (Setting("s"), "threads", None),
        (Setting("s", config={"scheduler": "processes", "num_workers": "3"}), "processes", 3),
        (Setting("s", config={"scheduler": "sync"}), "synchronous", 1),
        (Setting("s", config={"num_workers": "5"}), "threads", 5),
    ):
        computations = runner.record(setting, 60.0).recording.computations
        assert computations.scheduler.tolist() == [scheduler]
        assert workers is None or computations.workers.tolist() == [workers]
        assert setting.scheduler in (None, scheduler)
    code = "import dask, os; print(dask.config.get('array.chunk-size'), os.environ['N'])"
    checked = ChildRunner(Program("code", code), check="grep -q '^7MiB 4$'")
    setting = Setting("s", {"N": "4"}, {"array.chunk-size": "7MiB"})
    assert checked.run(setting, 60.0).check == 0


def test_parameters_are_filled_in_or_are_variables_of_the_environment():
    arguments = ["--chunks={chunks}", "{chunks}-{other}"]
    setting = parameter_setting("chunks", "9", arguments)
    assert filled(arguments, setting.parameters) == ["--chunks=9", "9-{other}"]
    assert setting.environment == {}
    assert parameter_setting("N", "2", arguments).environment == {"N": "2"}
    assert parameter_setting("N", "a b", arguments).shell_lines() == ["export N='a b'"]


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"arguments": "--fast"}, "arguments: expected a list of texts, found '--fast'"),
        ({"arguments": 5}, "arguments: expected a list of texts"),
        ({"schedulers": "threads"}, "schedulers: expected a list of texts"),
        ({"schedulers": ["best"]}, "schedulers: expected threads, processes or sync"),
        ({"workers": "4"}, "workers: expected whole numbers above 0"),
        ({"workers": [True]}, "workers: expected whole numbers above 0"),
        ({"workers": [0]}, "workers: expected whole numbers above 0"),
        ({"config": ["array.chunk-size"]}, "config: expected a mapping of names to values"),
        ({"config": {5: "1"}}, "config: expected a mapping of names to values"),
        ({"config": {"A b": "1"}}, "configuration: expected a key such as array.chunk-size"),
        ({"parameters": {("n",): "1"}}, "parameters: expected a mapping of names to values"),
        ({"parameters": {"N": []}}, "parameters: expected values of 'N' to try, found none"),
        *(
            (
                {"arguments": ["--n={n}"], "parameters": {"n": values}},
                "parameters: expected two or more values of 'n', of which the first is",
            )
            for values in ([], ["1"])
        ),
        ({"program": 5}, "program: expected a script or a function, found 5"),
        ({"program": None}, "program: expected a script or a function, found None"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused_before_anything_runs(settings, text):
    with pytest.raises(DiagnosticError, match=f"^{re.escape(text)}"):
        dask_diag.tune(**{"program": __file__, **settings})


def test_a_text_is_one_value_and_not_its_letters(monkeypatch):
    asked_for = []
    monkeypatch.setattr(
        sys.modules["dask_diag.tuning.tune"],
        "tune_with",
        lambda runner, asked, **_: asked_for.extend(asked) or TuneResult((), recorded()),
    )
    dask_diag.tune(
        __file__, workers=4, config={"array.chunk-size": "64MiB", "b": 1}, parameters={"N": 10}
    )
    assert [setting.name for setting in asked_for] == [
        "4 workers",
        "array.chunk-size=64MiB",
        "b=1",
        "N=10",
    ]


def test_settings_are_combined_if_they_change_different_things():
    one, two = Setting("1", config={"num_workers": "1"}), Setting("2", config={"num_workers": "2"})
    threads = Setting("t", {"OMP_NUM_THREADS": "1"})
    nested = Setting("n", config={"a.b": "1", "a.c": "2"})
    assert combined([one, two]) is None
    assert combined([]) is None
    both = combined([one, two, threads, nested])
    assert both.name == "1 + t + n"
    assert both.changes == {**threads.changes, **one.changes, **nested.changes}
    assert nested.configuration() == "a:\n  b: 1\n  c: 2"
    with pytest.raises(DiagnosticError, match=r"configuration: expected a key such as array"):
        _ = Setting("x", config={"a b": "1"}).environment


def test_what_findings_advise_comes_first():
    from dask_diag import Finding

    gil = Finding("gil-bound", "high", 1.0, "", "", certainty="estimate")
    names = [setting.name for setting in candidates(recorded("threads", 4), [gil])]
    assert names[0] == "scheduler=processes"
    assert {"scheduler=sync", "8 workers", "16 workers", "2 workers"} <= set(names)
    assert "scheduler=threads" not in names
    asked = requested(["sync"], [3], [("a.b", "1")], {"n": ["1", "2"]}, ["{n}"])
    assert [setting.name for setting in asked] == [
        "scheduler=sync",
        "3 workers",
        "a.b=1",
        "n=1",
        "n=2",
    ]


@pytest.mark.parametrize("code", ["io-bound", "too-few-threads"])
@pytest.mark.parametrize("scheduler, now", [("processes", 2), ("synchronous", 1)])
def test_more_threads_are_tried_where_tasks_wait_elsewhere(scheduler, now, code):
    """Both at once, as the finding advises; more processes would only have to start."""
    from dask_diag import Finding

    finding = Finding(code, "high", 1.0, "", "", certainty="estimate")
    tried = candidates(recorded(scheduler, now), [finding])
    advised = [setting.name for setting in tried if setting.reason == code]
    assert advised == [f"scheduler=threads, {4 * now} workers"]
    most = max(len(os.sched_getaffinity(0)), now)
    assert all((setting.workers or 0) <= most for setting in tried if setting.name not in advised)
    assert advised[0] not in {setting.name for setting in candidates(recorded(scheduler, now), [])}
    # While it is the best, twice as many.
    doubled = more_workers(tried, [setting for setting in tried if setting.name in advised])
    assert doubled.changes == {"dask scheduler": "threads", "dask num_workers": str(8 * now)}


@pytest.mark.long
@pytest.mark.truth
@pytest.mark.usefixtures("_ends_when_proven")
def test_more_workers_win_where_tasks_sleep():
    options = ["--only", "--workers", "12", "--html", "page.html", "--budget", "50s"]
    stdout = tune_here(*options, write(SLEEPS), "ä b", stderr="page: page.html\n")
    # 12 were asked for; what findings advise is tried, too, and may be as quick.
    assert int(re.match(r"(\d+) workers: ", stdout)[1]) >= 12
    assert "export DASK_NUM_WORKERS=" in stdout
    assert " as it is " in stdout
    page = Path("page.html").read_text()
    assert "<svg" in page
    assert '<tr class="faster">' in page
    assert "://" not in page.replace("http://www.w3.org", "")


def test_a_script_that_crashes_or_prints_something_else_with_a_setting(tuned):
    name = write(
        SLEEPS.replace("0.2", "0.01")
        + """
    import os
    value = os.environ.get("N", "0")
    print(value if value != "1" else 0)
    sys.exit(value == "3")
"""
    )
    text = tuned("--only", "--set", "N=1,2,3", name)
    assert text.startswith("No setting is ")
    assert "N=2: " in text
    assert ", stdout differs" in text
    assert "N=3: fails (status 1)" in text
    assert "N=1: " not in text


def test_environments_without_dask_diag_are_compared(tuned, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    # Without site, no editable install is found: only what is in the folders of the path.
    packages = sysconfig.get_path("purelib")
    for name in ("one", "two"):
        Path(name, "odd-1.dist-info").mkdir(parents=True)
        Path(name, "odd-1.dist-info", "METADATA").write_text(f"Name: odd\nVersion: {name}.0\n")
        folders = f"$PYTHONPATH:{Path(name).absolute()}:{packages}"
        python = Path(name, "python")
        run = f'PYTHONPATH="{folders}" exec "{sys.executable}" -S "$@"'
        python.write_text(f"#!/bin/sh\nNAMED={name} {run}\n")
        python.chmod(0o755)
    script = write(
        SLEEPS.replace("0.2", "0.001")
        + """
    import importlib.util, os
    has = importlib.util.find_spec("dask_diag") is not None
    with open("ran", "a") as file:
        print(os.environ["NAMED"], "recorded" if has else "plain", file=file)
"""
    )
    text = tuned("--only", "--python", "one/python", "--python", "two/python", script)
    assert " python: two/python " in text
    assert " fails" not in text
    assert "Versions that differ one/python two/python odd one.0 two.0" in text
    ran = Path("ran").read_text().splitlines()
    assert sorted(set(ran)) == ["one plain", "one recorded", "two plain", "two recorded"]
    assert ran.count("one recorded") == ran.count("two recorded") == 1


def test_a_script_that_sets_its_own_scheduler_is_said_to(tuned):
    name = write(SLEEPS.replace("0.2", "0.001").replace("*tasks", "*tasks, scheduler='threads'"))
    text = tuned("--only", "--scheduler", "sync", name)
    assert "not applied, the script sets its own scheduler: scheduler=sync" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_shows_what_is_known_and_leaves_no_child(number):
    # The first runs end; the fourth, of the second setting, does not.
    name = write(
        SLEEPS.replace("0.2", "0.01")
        + """
    import glob, os
    open(f"ran-{os.getpid()}", "w")
    if len(glob.glob("ran-*")) == 4:
        time.sleep(300)
"""
    )
    command = [*COMMAND, "tune", "--only", "--workers", "2,3", name]
    process = Command(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while len(list(Path().glob("ran-*"))) < 4:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == -number
    assert "interrupted: this is what was measured until then" in " ".join(stdout.split())
    assert "Traceback" not in stderr
    assert all(gone(int(path.name.removeprefix("ran-"))) for path in Path().glob("ran-*"))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["missing.py"], "cannot run missing.py: there is no such file"),
        (["--budget", "soon", "script.py"], "budget: expected a time such as 90s, 10m or 1h"),
        (["--scheduler", "threads,best", "script.py"], "expected threads, processes or sync"),
        (["--workers", "0", "script.py"], "expected numbers such as 2,4,8"),
        (["--set", "N", "script.py"], "expected NAME=VALUE, found 'N'"),
        (["--only", "script.py"], "--only: name something to try"),
        (["--python", "no/python", "script.py"], "python: expected a Python interpreter, such as"),
        (["script.py"], "nothing to tune: the program computed nothing"),
        (["-c", "raise KeyError(3)"], "the program fails without any setting (status 1): KeyError"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(arguments, message):
    write("print(1)")
    done = CliRunner().invoke(main, ["tune", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_progress_is_shown_on_a_terminal():
    leader, follower = pty.openpty()
    # A setting that looks hopeless after its recording would not be run.
    name = write(SLEEPS.replace("0.2", "0.05"))
    options = ["--only", "--workers", "12"]
    command = [*COMMAND, "tune", *options, name]
    process = Command(command, env=environment(), stdout=subprocess.PIPE, stderr=follower)
    os.close(follower)
    shown, is_interrupted = b"", False
    with open(leader, "rb", buffering=0) as terminal:
        try:
            while block := terminal.read(4096):
                shown += block
                if not is_interrupted and b"12 workers: run 1 (" in shown:
                    # There is no more to see.
                    process.send_signal(signal.SIGINT)
                    is_interrupted = True
        except OSError:
            # All of the other side is closed.
            pass
    process.communicate(timeout=60)
    assert b"\r\x1b[2Kas it is: recording (" in shown
    assert is_interrupted
    assert shown.endswith(b"\r\x1b[2K")


@pytest.mark.long
@pytest.mark.truth
@pytest.mark.usefixtures("_ends_when_proven")
def test_a_function_is_tuned():
    lines = []
    result = dask_diag.tune(sleeping, workers=[8], only=True, budget="60s", progress=lines.append)
    assert result.best is not None
    assert result.best.workers >= 8
    medians = dict(zip(result.table["setting"].tolist(), result.table["median"].tolist()))
    # On two processors the baseline sleeps for 1.2 s.
    assert medians[result.best.name] < medians["as it is"] < 1.2 + 0.9
    assert lines[0] == "as it is: recording"
    assert [finding.code for finding, _ in result.findings] == [
        finding.code for finding in dask_diag.findings(result.recording)
    ]
    assert "<table>" in result._repr_html_()
    assert repr(result).startswith(f"<TuneResult: {result.best.name}")
    assert len(repr(result)) < 300


def two_cpus_are_free():
    spin = [sys.executable, "-c", "sum(range(60_000_000))"]

    def seconds(count):
        start = time.perf_counter()
        processes = [subprocess.Popen(spin) for _ in range(count)]
        for process in processes:
            process.wait()
        return time.perf_counter() - start

    return seconds(2) < 1.3 * seconds(1)


@pytest.mark.long
@pytest.mark.truth
@pytest.mark.timeout(1000)
@pytest.mark.usefixtures("_ends_when_proven")
def test_processes_win_where_the_gil_is_the_bound(retried, monkeypatch):
    # Where they start at once a short program shows what they gain.
    monkeypatch.setenv("DASK_MULTIPROCESSING__CONTEXT", "fork")
    name = write("""
import dask

def spin(n):
    total = 0
    for value in range(3_000_000):
        total += value
    return total

if __name__ == "__main__":
    print(sum(dask.compute(*[dask.delayed(spin)(n) for n in range(10)])))
""")

    if not two_cpus_are_free():
        pytest.skip("two processes do not run at once: neighbours have the CPUs")

    def measure():
        result = dask_diag.tune(name, schedulers=["processes"], only=True, budget="5m")
        assert result.best is not None, str(result.summary())
        assert result.best.scheduler == "processes"

    retried(measure)


@pytest.mark.long
@pytest.mark.truth
@pytest.mark.timeout(600)
def test_nothing_wins_where_there_is_nothing_to_gain():
    name = write("""
import dask

def spin(n):
    total = 0
    for value in range(300_000):
        total += value
    return total

if __name__ == "__main__":
    value = dask.delayed(spin)(0)
    for n in range(4):
        value = dask.delayed(lambda value, n: spin(n))(value, n)
    print(value.compute())
""")
    result = dask_diag.tune(name, workers=[3], schedulers=["sync"], only=True, budget="3m")
    assert result.best is None, str(result.summary())
