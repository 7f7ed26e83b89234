"""dask-diag run: a program runs as python runs it, and leaves a recording however it ends."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_diag import load
from dask_diag.cli.main import main

from .commands import COMMAND, Command, environment, run
from .terminal import in_terminal

pytestmark = pytest.mark.leaves_files

COMPUTE = """
import sys, dask

def inc(value):
    return value + 1

def total(values):
    return sum(values)

def compute(scheduler="threads"):
    values = [dask.delayed(inc)(n) for n in range(10)]
    return dask.delayed(total)(values).compute(scheduler=scheduler)
"""


def python(*arguments, **kwargs):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
        **kwargs,
    )


def diag(*arguments, **kwargs):
    return run(*arguments, text=True, **kwargs)


@pytest.fixture
def refused(monkeypatch):
    """Run a command in this process that has to fail before any program runs; gives its stderr."""
    for name in ("argv", "path"):
        monkeypatch.setattr(sys, name, list(getattr(sys, name)))

    def run(*arguments):
        done = CliRunner().invoke(main, ["run", *arguments])
        assert (done.exit_code, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("Error: ")
        return line

    return run


def script(body, name="script.py", with_compute=True):
    text = (COMPUTE if with_compute else "") + textwrap.dedent(body)
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)
    return name


def without_recording(stderr):
    """What a program wrote to stderr, before what we did."""
    return re.split(r"^[\d.]+ \S+ in 1 computation", stderr, flags=re.MULTILINE)[0]


def test_a_script_runs_as_python_runs_it():
    body = """
    import __main__, inspect
    print(sys.argv, __name__, __file__, __spec__, __package__, sys.path[0])
    print(__main__.compute is compute, __main__.__dict__ is globals(), type(__builtins__).__name__)
    print(inspect.getsource(inc))
    if __name__ == "__main__":
        print(compute())
    """
    name = script(body, "folder/script.py")
    arguments = [name, "--output", "x", "-m", "--", "-o", "ä b"]
    plain, own = python(*arguments), diag("run", *arguments)
    assert (own.returncode, own.stdout) == (plain.returncode, plain.stdout)
    assert "55" in own.stdout
    assert "total" in own.stderr
    assert " in 1 computation: 11 tasks on " in own.stderr
    recording = load("script.diag")
    assert len(recording.tasks) == 11
    assert recording.notices == ()
    assert sorted(os.listdir()) == ["folder", "script.diag"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ("sys.exit(3)", 3),
        ("sys.exit()", 0),
        ("sys.exit('words')", 1),
        ("caller()", 1),
        ("dask.delayed(inc)('a').compute(scheduler='sync')", 1),
    ],
)
def test_a_program_ends_as_without_us(ends, status):
    name = script(f"""
    compute()
    def caller():
        try:
            {{}}["key"]
        except KeyError:
            raise ValueError("ä")
    {ends}
    """)
    plain, own = python(name), diag("run", name)
    assert own.returncode == plain.returncode == status
    if "inc" in ends:
        # A task that raises has frames of dask's, but none of ours.
        assert "in inc" in plain.stderr
        assert plain.stderr.splitlines()[-1] in own.stderr
        assert "dask_diag" not in without_recording(own.stderr)
    else:
        assert plain.stderr.strip() in own.stderr
    outcomes = load("script.diag").tasks["outcome"].tolist()
    assert outcomes == ["ok"] * 11 + ["failed"] * ("inc" in ends)
    Path(name).write_text("if True print()")
    plain, own = python(name), diag("run", "-f", name)
    assert (own.returncode, own.stderr[: len(plain.stderr)]) == (1, plain.stderr)


@pytest.mark.once
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_script_leaves_a_recording(number):
    name = script("""
    import time
    compute()
    def wait(value):
        print("waits", flush=True)
        time.sleep(100)
    if __name__ == "__main__":
        dask.delayed(wait)(1).compute(scheduler="sync")
    """)
    child = started([*COMMAND, "run", name])
    assert child.stdout.readline() == "waits\n"
    # What runs has to have been written, since there is no time at the end.
    while number == signal.SIGTERM and len(load("script.diag").tasks) < 12:
        time.sleep(0.02)
    child.send_signal(number)
    _, stderr = child.communicate(timeout=60)
    # As without us, the process ends by the signal: the shell shows 128 + its number.
    assert child.returncode == -number
    assert ("KeyboardInterrupt" in stderr) == (number == signal.SIGINT)
    assert ("2 computations" in stderr) == (number == signal.SIGINT)
    loaded = load("script.diag")
    assert loaded.state == ("truncated" if number == signal.SIGTERM else "complete")
    outcomes = loaded.tasks["outcome"].tolist()
    assert len(outcomes) == 12
    assert outcomes[-1] != "ok"


@pytest.mark.once
def test_an_exit_without_ado_leaves_a_recording_that_says_so():
    name = script("""
    import os, time
    from dask_diag import load
    compute()
    while len(load("script.diag").tasks) < 11:
        time.sleep(0.02)
    os._exit(5)
    """)
    done = diag("run", name)
    assert done.returncode == 5
    loaded = load("script.diag")
    assert len(loaded.tasks) == 11
    assert loaded.state == "truncated"


@pytest.mark.parametrize("context", ["spawn", "forkserver", "fork"])
def test_processes_find_what_the_script_defines(context):
    name = script(
        f"""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    print("imported by", __name__)
    if __name__ == "__main__":
        context = multiprocessing.get_context("{context}")
        for _ in range(5):
            # Ended as soon as they have started: nothing of own may keep them from that.
            context.Pool(2).terminate()
        with context.Pool(2) as pool:
            print(pool.map(inc, range(3)))
        with dask.config.set({{"multiprocessing.context": "{context}"}}):
            print(compute("processes"))
    """,
        "folder/script.py",
    )
    own = diag("run", name)
    assert own.returncode == 0, own.stderr
    assert "[1, 2, 3]" in own.stdout
    assert "55" in own.stdout
    assert set(load("script.diag").tasks["function"].tolist()) == {"inc", "total"}


WAYS = {
    "module": (["-m", "package", "-o", "x"], "package.diag"),
    "code": (
        ["-c", COMPUTE + "print(sys.argv, sys.path[0], compute('sync'))", "-x"],
        "command.diag",
    ),
    "folder": (["app", "x"], "app.diag"),
}


@pytest.mark.once
@pytest.mark.parametrize("way", WAYS)
def test_a_module_code_and_a_folder_run_as_python_runs_them(way):
    shows = """
    print(sys.argv, __name__, __package__, __spec__ and __spec__.name, __file__, sys.path[0])
    if __name__ == "__main__":
        print(compute("processes"))
    """
    script(f"{shows}from . import other\n    print(other.__name__)", "package/__main__.py")
    script("\nprint(sys.argv, __file__, sys.path[0], compute())\n", "app/__main__.py")
    for name in ("__init__", "other"):
        Path(f"package/{name}.py").write_text("")
    arguments, file = WAYS[way]
    plain, own = python(*arguments), diag("run", "-o", file, *arguments)
    assert plain.returncode == 0, plain.stderr
    assert (own.returncode, own.stdout) == (0, plain.stdout)
    assert len(load(file).tasks) == 11


@pytest.mark.once
def test_a_script_that_goes_elsewhere_and_forks():
    Path("elsewhere").mkdir()
    name = script("""
    import os
    os.chdir("elsewhere")
    child = os.fork()
    if child == 0:
        sys.exit(4)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    compute()
    """)
    done = diag("run", name)
    assert done.stdout.split() == ["4"]
    assert done.stderr.count("1 computation") == 1
    assert len(load("script.diag").tasks) == 11
    assert os.listdir("elsewhere") == []


@pytest.mark.once
def test_quiet_says_nothing_and_options_do_what_they_say():
    name = script("\nimport time\ndask.delayed(time.sleep)(0.2).compute(scheduler='sync')\n")
    done = diag("run", "-q", "--waits", "--interval", "0.01", "--html", "page.html", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    recording = load("script.diag")
    assert len(recording.resources) > 5
    assert sys.platform != "linux" or "sleep" in recording.waits["activity"].tolist()
    page = Path("page.html").read_text()
    assert "Dask report" in page
    assert "dask.delayed(time.sleep)(0.2)" in page
    assert [row["name"] for row in recording.environment.to_dicts()][-1] == name


@pytest.mark.once
def test_a_closed_stderr_and_stdout_are_none_of_our_business():
    name = script("\ncompute()\nsys.stderr.close()\nsys.stdout.close()\nsys.exit(6)\n")
    assert diag("run", name).returncode == python(name).returncode == 6
    assert len(load("script.diag").tasks) == 11


@pytest.mark.once
def test_the_program_and_the_files_are_three(refused):
    name = script("print('ran')")
    before = open(name).read()
    for options in (["-o", name], ["--html", name], ["-o", "a.diag", "--html", "./a.diag"]):
        assert "also reads or writes it" in refused("-f", *options, name)
    assert open(name).read() == before
    assert not os.path.exists("a.diag")


@pytest.mark.once
def test_the_next_step_is_printed():
    name = script("import os; os.mkdir('else'); os.chdir('else'); compute()")
    steps = diag("run", name).stderr.splitlines()[-2:]
    assert steps == ["recording: script.diag", "report: dask-diag report script.diag"]
    os.rmdir("else")
    steps = diag("run", "-o", "a b.diag", "--html", "page.html", name).stderr.splitlines()[-2:]
    assert steps == ["recording: a b.diag", "report: page.html"]
    assert "dask_diag" in Path("page.html").read_text()[:1000]


@pytest.mark.once
def test_a_program_that_runs_again_replaces_its_files_and_no_others():
    killed = script("import os, signal; compute(); os.kill(os.getpid(), signal.SIGKILL)")
    assert diag("run", "-o", "named.diag", killed).returncode == -signal.SIGKILL
    assert diag("run", killed).returncode == -signal.SIGKILL
    assert load("named.diag").state == load("script.diag").state == "truncated"
    options = ["-q", "-o", "named.diag", "--html", "page.html"]
    name = script("compute()")
    for arguments in (["-q", name], [*options, name], [*options, name]):
        assert diag("run", *arguments).returncode == 0, arguments
    assert load("named.diag").is_complete
    assert load("script.diag").is_complete
    other = script("compute()", "other.py")
    Path("other.diag").write_text("a file of another program")
    before = {name: Path(name).read_bytes() for name in ("named.diag", "other.diag")}
    for arguments in ([other], ["-o", "named.diag", other], ["-o", "named.diag", "-c", "1"]):
        done = diag("run", "-q", *arguments)
        assert done.returncode == 2, arguments
        assert "will not overwrite" in done.stderr
    assert {name: Path(name).read_bytes() for name in before} == before


@pytest.mark.once
def test_a_recording_that_the_program_removes_is_reported():
    name = script("import os; os.remove('script.diag')")
    done = diag("run", name)
    assert "it was removed meanwhile" in " ".join((done.stdout + done.stderr).split())
    # It is written again.
    assert load("script.diag").is_complete


OUTLIVES = """
import atexit, threading, time
from concurrent.futures import ThreadPoolExecutor

atexit.register(print, "at exit", flush=True)
executor = ThreadPoolExecutor(1)
executor.submit(print, "an executor that nobody shuts down", flush=True).result()

def later():
    threading.main_thread().join()
    print("waits", flush=True)
    time.sleep({seconds})
    print("sum", compute("sync"), flush=True)

threading.Thread(target=later).start()
"""


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ("", 0),
        pytest.param("sys.exit(3)", 3, marks=pytest.mark.once),
        pytest.param("1 / 0", 1, marks=pytest.mark.once),
    ],
)
def test_threads_that_outlive_the_program_are_waited_for(ends, status):
    name = script(OUTLIVES.format(seconds=0.3) + ends)
    plain, own = python(name), diag("run", name)
    assert (own.returncode, own.stdout) == (plain.returncode, plain.stdout)
    assert own.returncode == status
    assert own.stdout.split("\n")[-3:-1] == ["sum 55", "at exit"]
    assert " in 1 computation: 11 tasks on " in own.stderr
    loaded = load("script.diag")
    assert loaded.tasks["outcome"].tolist() == ["ok"] * 11
    assert loaded.notices == ()


@pytest.mark.once
@pytest.mark.parametrize(("ends", "status"), [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1)])
def test_ctrl_c_ends_the_wait_for_threads_as_it_does_without_us(ends, status):
    name = script("compute()" + OUTLIVES.format(seconds=100) + ends)
    for python_runs in ([sys.executable], [*COMMAND, "run"]):
        child = started([*python_runs, name])
        while child.stdout.readline() != "waits\n":
            assert child.poll() is None
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=60)
        assert (child.returncode, stdout) == (status, "at exit\n")
        assert "KeyboardInterrupt" in stderr
    assert " in 1 computation: 11 tasks on " in stderr
    assert "dask_diag" not in without_recording(stderr)
    assert load("script.diag").notices == ()


SLEEPS = """
import dask, itertools, time

# One step of the interpreter: a length may be that of two threads at once, and never 20.
started = itertools.count(1)

def nap(value):
    if next(started) == 20:
        print("naps", flush=True)
    time.sleep(0.05)

naps = [dask.delayed(nap)(value) for value in range(200)]
dask.compute(naps, scheduler="threads", num_workers=4)
"""


@pytest.mark.once
@pytest.mark.parametrize("pauses", [[0.06], [0.2, 0.2], [0.02] * 5])
def test_ctrl_c_again_and_again_loses_no_recording(pauses):
    """The one that comes while the file or the page is written is noted, and they are."""
    Path("script.py").write_text(SLEEPS)
    child = started([*COMMAND, "run", "--html", "page.html", "script.py"])
    assert child.stdout.readline() == "naps\n"
    for pause in [0, *pauses]:
        time.sleep(pause)
        child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT
    assert "Aborted" not in stderr
    loaded = load("script.diag")
    assert loaded.is_complete
    assert len(loaded.computations) == 1
    assert 8 <= len(loaded.tasks) < 200
    assert "1 computation" in stderr or len(pauses) > 1, stderr
    assert Path("page.html").exists() or len(pauses) > 1, stderr


@pytest.mark.once
def test_who_presses_ctrl_c_three_times_gets_no_page():
    Path("script.py").write_text(SLEEPS)
    Path("slow.py").write_text(
        textwrap.dedent("""
        import time
        from dask_diag.views.report import page
        from dask_diag.cli.main import main

        def slow(*args, **options):
            print("writes", flush=True)
            time.sleep(100)

        page.write_report = slow
        main(prog_name="dask-diag")
        """)
    )
    command = [sys.executable, "slow.py", "run", "--html", "page.html", "script.py"]
    child = started(command, subprocess.Popen)
    assert child.stdout.readline() == "naps\n"
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "writes\n"
    for _ in range(2):
        time.sleep(0.3)
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT
    assert "the report could not be written" in stderr
    assert load("script.diag").is_complete
    assert not Path("page.html").exists()


@pytest.mark.once
@pytest.mark.parametrize("pause", [0.0, 0.02, 0.05, 0.1])
def test_ctrl_c_while_it_starts_ends_by_the_signal(pause):
    starts = "from dask_diag.cli.main import main\nprint('starts', flush=True)\n"
    Path("start.py").write_text(f"{starts}main(prog_name='dask-diag')\n")
    script("import time; time.sleep(100)")
    child = started([sys.executable, "start.py", "run", "script.py"], subprocess.Popen)
    assert child.stdout.readline() == "starts\n"
    time.sleep(pause)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT
    assert not Path("script.diag").exists() or load("script.diag").is_complete


def started(command, start=Command):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return start(command, **pipes, text=True, env=environment())


SLOW = """
import time, dask
dask.compute([dask.delayed(time.sleep)(0.15) for _ in range(20)], scheduler="threads", num_workers=2)
"""


@pytest.mark.once
@pytest.mark.skipif(sys.platform == "win32", reason="terminals are made with pty")
def test_a_terminal_shows_how_far_a_long_computation_is():
    command = [*COMMAND, "run", "-c", SLOW]
    status, text = in_terminal(command, 100, NO_COLOR="1")
    assert status == 0
    assert re.search(r"\] \d\d% \| \d+/2\d \| 1\.\d+ s, about [\d.]+ m?s left \| \d+% CPU", text)
    status, text = in_terminal([*command[:4], "-q", "-f", *command[4:]], 100)
    assert (status, text) == (0, "")


@pytest.mark.skipif(os.cpu_count() == 1, reason="libraries have one thread anyway")
@pytest.mark.parametrize(
    "lines",
    [
        'os.environ["OPENBLAS_NUM_THREADS"] = "1"\nimport numpy',
        'os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")\nimport numpy',
        # Too late, as under python.
        'import numpy\nos.environ["OPENBLAS_NUM_THREADS"] = "1"',
    ],
)
def test_libraries_have_the_threads_that_the_program_gives_them(lines):
    body = f"import os\n{lines}\nfrom threadpoolctl import threadpool_info\n"
    name = script(
        f"{body}print(sorted(one['num_threads'] for one in threadpool_info()))", with_compute=False
    )
    done = diag("run", "--no-progress", name)
    assert done.stdout == python(name).stdout != ""
