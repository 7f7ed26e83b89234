"""dask-diag attach: a program that runs is recorded from there on, and left as it was."""

import contextlib
import io
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask.local
import pytest
from click.testing import CliRunner
from dask import delayed

import dask_diag
from dask_diag.cli.main import main
from dask_diag.model.codes import ATTACHED
from dask_diag.profilers import attaching
from dask_diag.profilers.attached import picture, start
from dask_diag.system.peers import credentials, new_socket, path_of_listener, receive, send

from .commands import COMMAND, Command, environment
from .programs import SEARCHED
from .recordings import with_columns, with_tables
from .test_findings_before_tasks import first_runs, in_processes, started

pytestmark = [
    pytest.mark.leaves_files,
    pytest.mark.skipif(sys.platform != "linux", reason="programs are attached to on Linux"),
]


class Held:
    """A computation on another thread, whose tasks wait until they are let go."""

    def __init__(self, scheduler):
        self.steps, self.began, self.done = threading.Semaphore(0), [], []
        held = [delayed(self.task)(n, dask_key_name=("held-1", n)) for n in range(8)]
        total = delayed(sum)(held, dask_key_name="total")
        self.workers = 1 if scheduler == "sync" else 2
        self.pool = ThreadPoolExecutor(1)
        self.result = self.pool.submit(lambda: total.compute(scheduler=scheduler, num_workers=2))

    def task(self, number):
        self.began.append(number)
        self.steps.acquire()
        self.done.append(is_wrapped(sys._getframe()))
        return number

    def let_go(self, tasks, of_all):
        for _ in range(tasks):
            self.steps.release()
        # The next ones are there.
        until(lambda: len(self.began) == min(of_all + self.workers, 8))
        until(lambda: len(self.done) == of_all == picture()["computations"][0][1])

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.end()

    def end(self):
        for _ in range(100):
            self.steps.release()
        result = self.result.result(20)
        self.pool.shutdown()
        return result


def is_wrapped(frame):
    """Whether dask_diag called the task."""
    while frame is not None:
        if "dask_diag" in os.path.dirname(frame.f_code.co_filename).split(os.sep)[-2:]:
            return True
        frame = frame.f_back
    return False


def until(is_so, seconds=20):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it was waited for in vain"
        time.sleep(0.005)


@pytest.fixture
def attached(tmp_path):
    """Attaches to this process; the place of the recording, and what the agent said."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    class Attached:
        path = str(tmp_path / "run.diag")
        peer = here

        def begin(self):
            start(there)
            self.now = receive(here, 20)
            send(here, path=self.path)
            self.answer = receive(here, 20)

        def leave(self):
            send(here, leave=True)
            assert receive(here, 20) == {"faults": []}
            until(lambda: there.fileno() == -1)
            return dask_diag.load(self.path)

    with there:
        with here:
            yield Attached()
        until(lambda: not any(t.name == "dask_diag-attach" for t in threading.enumerate()))


@pytest.fixture
def compute():
    with contextlib.ExitStack() as stack:
        yield lambda scheduler: stack.enter_context(Held(scheduler))


@pytest.mark.parametrize(("scheduler", "workers"), [("threads", 2), ("sync", 1)])
def test_a_computation_is_joined_and_measured_from_its_next_task_on(
    attached, compute, scheduler, workers
):
    held = compute(scheduler)
    held.let_go(3, of_all=3)
    attached.begin()
    ((site, finished, total, running),) = attached.now["computations"]
    assert (finished, total, running) == (3, 9, workers)
    assert site.startswith("test_attach.py:")
    keys = [key for _, key, _ in attached.now["threads"] if key]
    assert [key[:9] for key in keys] == ["('held-1'"] * workers
    assert held.end() == sum(range(8))
    recording = attached.leave()
    # Those that ran are not known to be measured, and all later ones are.
    assert sorted(held.done) == [False] * (3 + workers) + [True] * (5 - workers)
    (joined,) = recording.joined.to_dicts()
    (computation,) = recording.computations.to_dicts()
    assert joined == {
        "computation": computation["computation"],
        "time": computation["start"],
        "finished": 3,
        "running": workers,
    }
    assert computation["called"] == computation["start"] == computation["prepared"]
    assert 0 <= computation["cpu_scheduler"] < 10
    tasks = recording.tasks
    assert len(tasks) == 6
    assert [math.isnan(time) for time in tasks.start].count(True) == workers
    assert set(tasks.outcome.tolist()) == {"ok"}
    assert not any(math.isnan(time) for time in tasks.collected)
    assert {row["function"]: row["tasks"] for row in recording.planned.to_dicts()} == {
        "held": 5,
        "sum": 1,
    }
    told = "ran already: 3 tasks had ended"
    assert any(told in notice for notice in recording.notices), recording.notices


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_leaving_takes_everything_out_of_a_computation_that_goes_on(attached, compute, scheduler):
    own = dask.local.local_callbacks
    held = compute(scheduler)
    held.let_go(1, of_all=1)
    attached.begin()
    held.let_go(4, of_all=5)
    recording = attached.leave()
    assert dask.local.local_callbacks is own
    running = 2 if scheduler == "threads" else 1
    assert held.end() == sum(range(8))
    # Those that were submitted meanwhile.
    assert held.done.count(True) == 4
    assert recording.is_complete
    outcomes = recording.tasks.outcome.tolist()
    assert outcomes.count("unfinished") == running
    assert outcomes.count("ok") == 4
    assert recording.computations.error.tolist() == [""]
    assert any("went on after the recording" in notice for notice in recording.notices)


def test_a_computation_that_starts_while_it_is_recorded_is_left_too(attached, compute):
    attached.begin()
    held = compute("threads")
    held.let_go(3, of_all=3)
    recording = attached.leave()
    assert held.end() == sum(range(8))
    assert held.done.count(True) == 5
    assert not len(recording.joined)
    assert recording.computations.error.tolist() == [""]


def double(number):
    time.sleep(0.02)
    return 2 * number


def test_processes_are_joined_and_their_start_is_not_guessed(attached):
    values = [delayed(double)(n) for n in range(60)]
    with ThreadPoolExecutor(1) as pool:
        options = {"scheduler": "processes", "num_workers": 2, "chunksize": 2}
        result = pool.submit(delayed(sum)(values).compute, **options)
        until(lambda: any(c[1] for c in picture()["computations"]))
        attached.begin()
        assert result.result(60) == 2 * sum(range(60))
    recording = attached.leave()
    (joined,) = recording.joined.to_dicts()
    measured = [not math.isnan(time) for time in recording.tasks.start]
    assert joined["finished"] + len(measured) == 61
    assert measured.count(False) == joined["running"]
    activities = dask_diag.activities(recording).to_dicts()
    assert not any(row["activity"] == "startup" and row["seconds"] > 0 for row in activities)
    (preparing,) = (r["seconds"] for r in dask_diag.analysis.phases.phases(recording).to_dicts() if r["phase"] == "preparing")  # fmt: skip
    assert preparing == 0


def test_a_computation_inside_a_task_is_not_joined_as_one_of_its_own(attached):
    steps = threading.Semaphore(0)

    def outer():
        steps.acquire()
        inner = [delayed(double)(n) for n in range(2)]
        return delayed(sum)(inner).compute(scheduler="sync")

    with ThreadPoolExecutor(1) as pool:
        values = [delayed(outer)() for _ in range(3)]
        result = pool.submit(delayed(sum)(values).compute, scheduler="threads", num_workers=1)
        until(lambda: any(c[3] for c in picture()["computations"]))
        attached.begin()
        for _ in range(3):
            steps.release()
        assert result.result(20) == 6
    assert len(attached.leave().computations) == 1


@pytest.mark.parametrize(
    ("active", "why"),
    [(dask_diag.Profiler, "another profiler of dask_diag, is active"), (None, "another dask-diag attach")],
)  # fmt: skip
def test_one_at_a_time(attached, active, why, monkeypatch):
    monkeypatch.setattr(dask_diag.profilers.attached, "_LONGEST_LEAVING", 0.01)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here:
        if active is None:
            attached.begin()
            start(there)
            assert why in receive(here, 20)["why"]
            attached.leave()
        else:
            with active():
                start(there)
                assert why in receive(here, 20)["why"]


TASKS = 2000
PROGRAM = """
import json, os, sys, threading, time
import dask, dask.local
from dask import delayed
from dask.callbacks import Callback

began = threading.Event()

def work(number):
    began.set()
    time.sleep(0.02 * (not os.path.exists("quick")))
    return number

def left():
    files = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
             if os.path.exists(f"/proc/self/fd/{n}")]
    return {
        "threads": sorted(t.name for t in threading.enumerate() if "Pool" not in t.name),
        "files": sorted(name.split(":")[0] for name in files if "/proc/" not in name and ".so" not in name),
        "callbacks": [str(dask.local.local_callbacks), len(Callback.active)],
        "kept": [dask.base.unpack_collections.__module__],
    }

def compute():
    values = [delayed(work)(n, dask_key_name=("work-1", n)) for n in range(TASKS)]
    return delayed(sum)(values).compute(scheduler="threads", num_workers=2)

if LISTENS:
    import dask_diag
    dask_diag.listen()
before = left()
thread = threading.Thread(target=lambda: print(compute(), flush=True))
thread.start()
began.wait()
print(json.dumps(before), flush=True)
thread.join()
print(json.dumps(left()), flush=True)
"""


@pytest.fixture
def program(tmp_path):
    """Starts a program that computes; it has printed what it has open before."""
    started = []

    def begin(listens):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.replace("LISTENS", repr(listens)).replace("TASKS", repr(TASKS)))
        variables = {**environment(), "PYTHONPATH": SEARCHED}
        child = subprocess.Popen(
            [sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=variables, cwd=tmp_path,
        )  # fmt: skip
        started.append(child)
        child.before = child.stdout.readline()
        return child

    yield begin
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def ended(child):
    """What a program printed at its end: its result, nothing on stderr, and all as before."""
    Path("quick").touch()
    output, errors = child.communicate(timeout=60)
    assert errors == ""
    result, after = output.splitlines()
    assert int(result) == sum(range(TASKS))
    assert json.loads(after) == json.loads(child.before)
    assert child.returncode == 0


# Programs that listen, with any Python; and those that do not, from Python 3.14 on.
LISTENS = [sys.version_info < (3, 14)]


@pytest.mark.parametrize("listens", LISTENS)
def test_a_program_is_attached_to_for_some_seconds_and_until_its_end(program, listens, tmp_path):
    child = program(listens)
    done = subprocess.run(
        [*COMMAND, "attach", str(child.pid), "--seconds", "0.4"],
        capture_output=True, text=True, env=environment(), timeout=60, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"process {child.pid}: {tmp_path / 'program.py'}" in done.stderr
    assert re.search(r"Thread-1 .*program.py:\d+ compute", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    recording = dask_diag.load(tmp_path / f"attach-{child.pid}.diag")
    assert "work" in done.stdout
    (code,) = recording.environment.section.eq("calling code").nonzero()[0].tolist()
    assert recording.environment.name[code] == "program.py"
    assert set(recording.tasks.outcome.tolist()) == {"ok", "unfinished"}
    with recording_command(child) as attach:
        Path("quick").touch()
        output, errors = child.communicate(timeout=60)
        summary, _ = attach.communicate(timeout=60)
    assert (attach.returncode, errors, child.returncode) == (0, "", 0)
    assert output.splitlines()[0] == str(sum(range(TASKS)))
    assert "work" in summary
    assert dask_diag.load("run.diag").is_complete
    assert not os.path.exists(path_of_listener(child.pid, os.geteuid()))


@contextlib.contextmanager
def recording_command(child, *options):
    """The command, once it records."""
    with Command(
        [*COMMAND, "attach", str(child.pid), "-o", "run.diag", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as attach:  # fmt: skip
        said = [""]
        while not said[-1].startswith("recording to"):
            said.append(attach.stderr.readline())
            assert said[-1], said
        yield attach


@pytest.mark.parametrize("listens", LISTENS)
def test_the_command_is_killed_or_interrupted(program, listens):
    child = program(listens)
    with recording_command(child) as attach:
        attach.kill()
        attach.wait()
        attach.stdout.read()
    until(lambda: dask_diag.load("run.diag").is_complete)
    with recording_command(child, "--force") as attach:
        time.sleep(0.2)
        attach.send_signal(signal.SIGINT)
        summary, _ = attach.communicate(timeout=60)
    assert attach.returncode == 0
    assert "work" in summary
    ended(child)


def refused(*arguments):
    done = CliRunner().invoke(main, ["attach", *map(str, arguments)])
    assert done.exit_code == 2
    (line,) = done.stderr.strip().splitlines()
    return line


def test_who_may_not_attach_is_told_why(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        assert "it is not a Python program" in refused(sleeping.pid)
        sleeping.kill()
    assert refused(sleeping.pid) == f"Error: there is no process {sleeping.pid}"
    (tmp_path / "there.diag").touch()
    assert "will not overwrite" in refused(os.getpid(), "-o", "there.diag")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "it is of another user (uid" in refused(os.getpid())


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="it can be attached to")
def test_an_old_python_has_to_listen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "let the program call dask_diag.listen()" in refused(os.getpid())


@pytest.mark.skipif(sys.version_info < (3, 14), reason="it has to listen")
@pytest.mark.parametrize(
    ("options", "text", "why"),
    [
        ((), "import threading, time; print(1, flush=True); [time.sleep(0.01) for _ in range(999)]", "it has not imported dask"),
        ((), "import dask, time; print(1, flush=True); time.sleep(60)", "none of its threads ran Python code for 0.3 s"),
        (("-X", "disable-remote-debug"), "import dask, time; print(1, flush=True); time.sleep(60)", "remote debugging is disabled"),
        (("-S",), "import sys; sys.path[:] += {path}; import dask, time; sys.path[:] = sys.path[:-1]; print(1, flush=True); [time.sleep(0.01) for _ in range(999)]", "is not installed there; install it with"),
    ],
)  # fmt: skip
def test_a_program_that_cannot_be_attached_to(options, text, why, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attaching, "_LONGEST_WAIT", 0.3)
    path = [p for p in sys.path if "packages" in p and os.path.isdir(p)]
    child = subprocess.Popen(
        [sys.executable, *options, "-c", text.format(path=path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(PYTHONPATH=""),
    )  # fmt: skip
    with child:
        try:
            child.stdout.readline()
            # It is where it waits.
            time.sleep(0.3)
            assert why in refused(child.pid)
        finally:
            child.kill()
        assert child.communicate()[1] == ""
    assert not os.listdir(tmp_path)


def test_a_process_that_has_the_number_of_another_is_left_alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    times = iter(["1", "2"])
    monkeypatch.setattr(attaching, "started", lambda process: next(times))
    monkeypatch.setattr(attaching, "Requests", lambda python: io.BytesIO())
    monkeypatch.setattr(attaching, "_FIRST_MINOR", 10)
    assert refused(os.getpid()) == f"Error: there is no process {os.getpid()}"


def test_a_socket_of_another_user_is_not_used(monkeypatch, tmp_path):
    """Neither one in a folder that others can write to, nor one that another process made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(attaching, "_FIRST_MINOR", 99)
    folder = tmp_path / "open"
    folder.mkdir()
    path = str(folder / "1.sock")
    monkeypatch.setattr(attaching, "path_of_listener", lambda process, user: path)
    with new_socket() as server:
        server.bind(path)
        server.listen()
        folder.chmod(0o777)
        assert "let the program call dask_diag.listen()" in refused(os.getpid())
        folder.chmod(0o700)
        with subprocess.Popen(["sleep", "60"]) as other:
            assert "it is not a Python program" in refused(other.pid)
            other.kill()
        with new_socket() as client:
            client.connect(path)
            assert credentials(client) == (os.getpid(), os.geteuid())


@pytest.mark.parametrize(
    ("code", "recording"),
    [
        ("slow-start", started(5.0, 1.0)),
        ("pool-startup", in_processes(3.0, 0.1)),
        ("first-call", first_runs()),
    ],
)
def test_findings_that_need_the_start_are_silent(code, recording):
    attached = with_tables(
        recording, environment={"section": [ATTACHED], "name": ["process"], "value": ["1"]}
    )
    codes = [{finding.code for finding in dask_diag.findings(r)} for r in (recording, attached)]
    assert [code in found for found in codes] == [True, False]


def test_a_computation_that_was_joined_has_nothing_to_prepare():
    recording = started(0.0, 1.0)
    name = recording.computations.computation[0]
    joined = with_tables(recording, joined={"computation": [name], "finished": [3], "running": [1]})
    late = with_columns(joined, "tasks", start=(joined.tasks.start + 0.25).tolist())
    (preparing,) = (
        row["seconds"]
        for row in dask_diag.analysis.phases.phases(late).to_dicts()
        if row["phase"] == "preparing"
    )
    assert preparing == 0
