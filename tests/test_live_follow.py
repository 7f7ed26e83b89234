"""Following a file: after each poll the rows are those that `load` finds, whatever happened to it."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_diag import Recording, load, save
from dask_diag.errors import RecordingFileError
from dask_diag.model.table import Table
from dask_diag.storage import follow
from dask_diag.storage.chunks import joined
from dask_diag.storage.follow import QUIET, Follower, FollowState
from dask_diag.storage.write import Writer, is_locked_by_any

from .recordings import chunks_of_example, example

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]


class Viewer:
    """What a live view does with a follower: it holds the rows of one recording."""

    def __init__(self, path="run.diag", is_locked=is_locked_by_any):
        self.now = 0.0
        self.follower = Follower(path, clock=lambda: self.now, is_locked=is_locked)
        self.chunks, self.provisional, self.state = [], None, ""

    def poll(self):
        """Until it has caught up."""
        while True:
            update = self.follower.poll()
            if update.fresh:
                self.chunks = []
            self.chunks += update.chunks
            self.provisional, self.state = update.provisional, update.state
            if not update.behind:
                return update

    def wait(self):
        """Until nothing has changed for long."""
        self.poll()
        self.now += QUIET
        return self.poll()

    @property
    def recording(self):
        chunks = [*self.chunks, *([self.provisional] if self.provisional else [])]
        return joined(chunks, []) if chunks else None


def tables_of(recording):
    tables = (getattr(recording, field.name) for field in fields(Recording))
    return [repr(t.to_dicts()) for t in tables if isinstance(t, Table)]


def assert_rows_are_those_of_load(viewer, path="run.diag"):
    try:
        expected = load(path)
    except RecordingFileError:
        assert viewer.recording is None
    else:
        assert tables_of(viewer.recording) == tables_of(expected)


def provisional_rows(complete, n):
    return replace(complete, tasks=complete.tasks.filter(slice(0, n)))


def test_each_poll_has_what_was_written_since():
    viewer = Viewer()
    assert viewer.poll().state == FollowState.WAITING
    running = provisional_rows(example(40), 3)
    with Writer("run.diag") as writer:
        for chunk in chunks_of_example():
            writer.append(chunk, running)
            update = viewer.poll()
            assert (len(update.chunks), update.state) == (1, FollowState.GROWING)
            assert len(viewer.provisional.tables["tasks"]) == 3
            assert_rows_are_those_of_load(viewer)
        writer.append(chunk)
        viewer.poll()
        assert viewer.provisional is None
    update = viewer.poll()
    assert (update.state, update.chunks, update.fresh) == (FollowState.COMPLETE, [], False)
    assert_rows_are_those_of_load(viewer)


def test_each_byte_is_read_about_once(monkeypatch):
    read = []
    real = follow.read
    monkeypatch.setattr(follow, "read", lambda *args: read.append(real(*args)) or read[-1])
    viewer = Viewer()
    per_poll = []
    with Writer("run.diag") as writer:
        for _ in range(10):
            for chunk in chunks_of_example(4000):
                writer.append(chunk)
                before = sum(map(len, read))
                viewer.poll()
                viewer.poll()
                per_poll.append(sum(map(len, read)) - before)
    size = os.path.getsize("run.diag")
    # A poll also reads the beginning, which says what recording it is: it does not grow.
    heads = 4 * 1024 * len(per_poll)
    assert sum(per_poll) - heads < 1.05 * size
    assert per_poll[-1] < 1.05 * max(per_poll[:8])


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """A file that was closed, and one whose writer was killed."""
    path = tmp_path_factory.mktemp("contents") / "run.diag"
    with Writer(path) as writer:
        for chunk in chunks_of_example(60):
            writer.append(chunk, provisional_rows(example(40), 2))
        growing = path.read_bytes()
        writer.append(chunk)
    return {"closed": path.read_bytes(), "killed": growing}


@pytest.mark.parametrize("kind", ["closed", "killed"])
def test_truncated_anywhere(contents, kind):
    content = contents[kind]
    sizes = sorted(random.Random(kind).sample(range(len(content)), 100), reverse=True)
    path = Path("run.diag")
    path.write_bytes(content)
    old = Viewer()
    old.poll()
    for size in sizes:
        os.truncate(path, size)
        new = Viewer()
        for viewer in (old, new):
            viewer.poll()
            if viewer.recording is not None or viewer is new:
                assert_rows_are_those_of_load(viewer)
            viewer.wait()
        assert new.state == (FollowState.TRUNCATED if size else FollowState.WAITING), size


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_flipped_bit_anywhere(contents, data):
    content = bytearray(contents[data.draw(st.sampled_from(["closed", "killed"]))])
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    Path("run.diag").write_bytes(content)
    viewer = Viewer()
    viewer.wait()
    assert_rows_are_those_of_load(viewer)
    assert viewer.state in (
        FollowState.DAMAGED,
        FollowState.TRUNCATED,
        FollowState.NOT_A_RECORDING,
    )


def test_what_was_closed_and_changed_is_read_again(contents):
    path = Path("run.diag")
    path.write_bytes(contents["closed"])
    viewer = Viewer()
    viewer.poll()
    assert viewer.state == FollowState.COMPLETE
    content = bytearray(contents["closed"])
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    viewer.wait()
    assert viewer.state == FollowState.DAMAGED
    assert_rows_are_those_of_load(viewer)


STEPS = {
    "nothing": lambda run: None,
    "append": lambda run: run.append(),
    "close": lambda run: run.close(),
    "replace in place": lambda run: run.restart(),
    "replace by rename": lambda run: run.rename(),
    "remove": lambda run: run.remove(),
    "empty": lambda run: run.cut(0),
    "cut": lambda run: run.cut(run.random.randrange(1, 4000)),
    "wait": lambda run: run.wait(),
}


class Run:
    """A file to which things happen, and a viewer of it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.path = Path("run.diag")
        self.path.unlink(missing_ok=True)
        self.viewer = Viewer()
        self.writer, self.count = None, 0

    def _chunk(self):
        self.count += 1
        return example(self.random.randrange(0, 60), seed=self.count)

    def append(self):
        if self.writer is None:
            self.restart()
        provisional = self._chunk() if self.random.random() < 0.5 else None
        self.writer.append(self._chunk(), provisional)

    def close(self):
        if self.writer:
            self.writer.close()
            self.writer = None

    def restart(self):
        self._kill()
        self.writer = Writer(self.path, overwrite=True)
        self.append()

    def rename(self):
        self._kill()
        save(self._chunk(), "other.diag", overwrite=True)
        os.replace("other.diag", self.path)

    def remove(self):
        self._kill()
        self.path.unlink(missing_ok=True)

    def cut(self, size):
        self._kill()
        if self.path.exists() and size < self.path.stat().st_size:
            os.truncate(self.path, size)

    def wait(self):
        self.viewer.now += QUIET

    def _kill(self):
        if self.writer:
            os.close(self.writer._file)
            self.writer._file = None
            self.writer = None


@settings(max_examples=40)
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=12), st.integers(0, 999))
def test_whatever_happens_to_the_file(steps, seed):
    run = Run(seed)
    try:
        for step in steps:
            STEPS[step](run)
            run.viewer.poll()
            # A viewer goes on showing the last rows of a file that is gone.
            if run.viewer.state not in (FollowState.WAITING, FollowState.NOT_A_RECORDING):
                assert_rows_are_those_of_load(run.viewer)
    finally:
        run.close()


@pytest.mark.parametrize("how", ["replace in place", "replace by rename"])
@pytest.mark.parametrize("closed", [True, False])
def test_a_larger_recording_in_the_place_of_one_is_another(how, closed):
    run = Run(0)
    run.append()
    if closed:
        run.close()
    run.viewer.poll()
    STEPS[how](run)
    for _ in range(9):
        run.append() if run.writer else None
    if not run.writer:
        save(example(900), "larger.diag")
        os.replace("larger.diag", run.path)
    assert run.path.stat().st_size > run.viewer.follower._scan.end
    update = run.viewer.poll()
    assert update.fresh
    assert_rows_are_those_of_load(run.viewer)
    run.close()


def test_a_file_that_is_replaced_while_it_is_read_gives_no_rows_of_two(monkeypatch):
    save(example(50), "run.diag")
    save(example(50, seed=1), "other.diag")
    other, real = Path("other.diag").read_bytes(), follow.read

    def read(file, start, size):
        content = real(file, start, size)
        if start == 0 and not replaced:
            replaced.append(True)
            Path("run.diag").write_bytes(other)
        return content

    replaced = []
    viewer = Viewer()
    monkeypatch.setattr(follow, "read", read)
    update = viewer.poll()
    assert replaced
    assert (update.chunks, update.state) == ([], FollowState.WAITING)
    assert viewer.poll().fresh
    assert_rows_are_those_of_load(viewer)


def test_files_that_are_no_recordings(tmp_path):
    os.mkfifo("pipe")
    Path("text").write_text("no recording " * 200)
    Path("folder").mkdir()
    with Writer("old.diag") as writer:
        writer.append(example(3))
    content = Path("old.diag").read_bytes()
    Path("newer").write_bytes(content.replace(b'"version": 8', b'"version": 9'))
    shutil.make_archive("archive", "zip", "folder")
    for name in ("pipe", "text", "folder", "newer", "archive.zip"):
        update = Viewer(name).poll()
        assert (update.state, update.chunks) == (FollowState.NOT_A_RECORDING, []), name
        assert update.problem


@pytest.mark.parametrize("sees", [False, None])
@pytest.mark.parametrize("stops_at", [1, 2, 5])
def test_a_writer_whose_lock_is_not_seen_is_quiet_and_never_truncated(stops_at, sees):
    """As one on another machine; or the system does not say who has a lock."""
    viewer = Viewer(is_locked=lambda file: sees)
    with Writer("run.diag") as writer:
        for n in range(stops_at):
            writer.append(example(n + 1))
            assert viewer.poll().state == FollowState.GROWING
            viewer.now += 0.8
        # After the first chunk nothing shows that its lock cannot be seen.
        unsure = stops_at == 1 and sees is False
        expected = FollowState.TRUNCATED if unsure else FollowState.GROWING
        for _ in range(3):
            assert viewer.wait().state == expected
        for n in (9, 4):
            writer.append(example(n))
            assert_state_and_rows(viewer, FollowState.GROWING)
        assert viewer.wait().state == FollowState.GROWING
    assert_state_and_rows(viewer, FollowState.COMPLETE)


def test_one_that_is_killed_is_truncated_though_its_lock_was_never_seen():
    locked = [None]
    viewer = Viewer(is_locked=lambda file: bool(locked))
    with Writer("run.diag") as writer:
        writer.append(example(3))
        viewer.poll()
        writer.append(example(4))
        locked.clear()
        viewer.poll()
        writer.abandon()
    assert viewer.wait().state == FollowState.TRUNCATED


def assert_state_and_rows(viewer, state):
    assert viewer.poll().state == state
    assert_rows_are_those_of_load(viewer)


def in_another_namespace(*command):
    return ["unshare", "-r", "--pid", "--fork", "--mount-proc", *command]


@pytest.mark.parametrize("appended", [0, 4])
def test_a_writer_in_another_pid_namespace_is_growing_until_it_is_killed(appended):
    """Also one that had stopped before it was followed."""
    tried = subprocess.run(in_another_namespace("true"), capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("no PID namespaces here")
    project = str(Path(__file__).parent.parent)
    command = in_another_namespace(sys.executable, "-c", WATCHER, project)
    writer = Writer("run.diag")
    writer.append(example(1))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as watcher:

        def after(wait):
            watcher.stdin.write(f"{wait}\n")
            watcher.stdin.flush()
            return watcher.stdout.readline().strip()

        states = []
        for n in range(appended):
            writer.append(example(n + 2))
            states.append(after("poll"))
        states += [after("quiet") for _ in range(3)]
        writer.abandon()
        last = [after("quiet") for _ in range(2)][-1]
    assert {*states} == {FollowState.GROWING}
    assert last == FollowState.TRUNCATED


WATCHER = """
import sys
sys.path.insert(0, sys.argv[1])
from dask_diag.storage.follow import Follower
now = 0.0
follower = Follower("run.diag", clock=lambda: now)
for line in sys.stdin:
    now += 0.8 if line == "poll\\n" else 3.0
    print(follower.poll().state, flush=True)
"""


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    with open(path, "r+b") as file:
        file.write(content)


def test_a_bit_that_flips_behind_the_reader_is_seen_when_the_file_is_complete():
    viewer, path = Viewer(), Path("run.diag")
    with Writer(path) as writer:
        for n in range(3):
            writer.append(example(50, seed=n))
            viewer.poll()
        flip(path, viewer.follower._scan.end // 2)
        writer.append(example(50, seed=9))
        viewer.poll()
    viewer.poll()
    assert viewer.wait().state == FollowState.DAMAGED
    assert_rows_are_those_of_load(viewer)


@pytest.mark.parametrize("position", [4, 100])
def test_a_bit_that_flips_before_the_reader_is_said_and_costs_no_more_as_the_file_grows(
    position, monkeypatch
):
    """In the header of an entry, and in what it holds."""
    read, real = [], follow.read
    monkeypatch.setattr(follow, "read", lambda *args: read.append(real(*args)) or read[-1])
    monkeypatch.setattr(follow, "_MOST_AT_ONCE", 3000)
    viewer, path, sums = Viewer(), Path("run.diag"), []
    with Writer(path) as writer:
        writer.append(example(50))
        viewer.poll()
        end = path.stat().st_size
        writer.append(example(50, seed=1))
        flip(path, end + position)
        for n in range(20):
            writer.append(example(50, seed=2 + n))
            read.clear()
            viewer.now += 0.8
            update = viewer.poll()
            assert update.state == FollowState.GROWING
            sums.append(sum(map(len, read)))
            # What is just being written is not readable either.
            assert n or not update.problem
        assert update.problem == "damaged"
        assert_rows_are_those_of_load(viewer)
    assert max(sums[1:]) <= sums[1] + 100
    assert viewer.wait().state == FollowState.DAMAGED


def test_too_many_open_files_say_nothing_of_the_recording(monkeypatch):
    def fail(*args):
        raise OSError(errno.EMFILE, "Too many open files")

    viewer, complete = Viewer(), example(40)
    with Writer("run.diag") as writer:
        writer.append(complete, provisional_rows(complete, 3))
        viewer.poll()
        before = viewer.provisional
        with monkeypatch.context() as patch:
            patch.setattr(follow, "open_without_blocking", fail)
            update = viewer.poll()
        assert (update.state, update.problem) == (FollowState.GROWING, "")
        assert viewer.provisional is before
        writer.append(complete)
        assert_state_and_rows(viewer, FollowState.GROWING)


def test_to_follow_takes_no_lock(monkeypatch):
    import fcntl

    ask = fcntl.fcntl

    def refuse(*args):
        raise AssertionError("a lock was tried")

    def only_ask(file, command, request):
        assert command == fcntl.F_OFD_GETLK
        return ask(file, command, request)

    with Writer("run.diag") as writer:
        writer.append(example(10))
        monkeypatch.setattr(fcntl, "flock", refuse)
        monkeypatch.setattr(fcntl, "fcntl", only_ask)
        for _ in range(3):
            Viewer().wait()
        monkeypatch.undo()


WRITER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tests.recordings import chunks_of_example
from dask_diag.storage.write import Writer
writer = Writer("run.diag")
for chunk in chunks_of_example():
    writer.append(chunk)
print("written", flush=True)
time.sleep(100)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say who locks a file")
def test_a_killed_writer_is_noticed_and_a_stopped_one_is_not_taken_for_killed():
    project = str(Path(__file__).parent.parent)
    process = subprocess.Popen([sys.executable, "-c", WRITER, project], stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        viewer = Viewer()
        process.send_signal(signal.SIGSTOP)
        for _ in range(10):
            update = viewer.wait()
            assert update.state == FollowState.GROWING
        assert update.quiet >= 5 * QUIET
        process.kill()
        process.wait()
        viewer.now += 0.8
        assert viewer.poll().state == FollowState.TRUNCATED
        assert_rows_are_those_of_load(viewer)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
