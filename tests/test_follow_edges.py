"""Following a file where something happens between two reads, or where there is little of it."""

import os
from itertools import islice
from pathlib import Path

import pytest

from dask_diag import load, save
from dask_diag.storage import container, follow
from dask_diag.storage.follow import FollowState
from dask_diag.storage.write import Writer

from .recordings import chunks_of_example, example
from .test_live_follow import Viewer, assert_rows_are_those_of_load, provisional_rows

pytestmark = [pytest.mark.once, pytest.mark.leaves_files]

PATH = Path("run.diag")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What a killed writer leaves: three chunks, and what was provisional."""
    path = tmp_path_factory.mktemp("killed") / "run.diag"
    with Writer(path) as writer:
        for chunk in islice(chunks_of_example(60), 3):
            writer.append(chunk, provisional_rows(example(40), 2))
        return path.read_bytes()


def entries_of(content):
    return [entry for entry, _ in container.read_entries(memoryview(content))]


def test_a_file_without_a_whole_chunk_header_is_waited_for(killed):
    """Only then is it known which recording it is: the checksum of its first chunk says it."""
    about, *_ = entries_of(killed)
    viewer = Viewer()
    for size in (0, 1, about.stop - 1, about.stop, about.stop + container.CHUNK_HEADER_SIZE - 1):
        PATH.write_bytes(killed[:size])
        update = viewer.poll()
        assert (update.state, update.fresh, update.problem) == (FollowState.WAITING, False, "")
    PATH.write_bytes(killed[: about.stop + container.CHUNK_HEADER_SIZE])
    update = viewer.poll()
    assert (update.state, update.fresh, update.chunks) == (FollowState.GROWING, True, [])
    PATH.write_bytes(killed)
    update = viewer.poll()
    assert (update.fresh, len(update.chunks)) == (False, 3)
    assert_rows_are_those_of_load(viewer)


def test_a_chunk_that_is_larger_than_what_is_read_at_once_is_read(monkeypatch, killed):
    monkeypatch.setattr(follow, "_MOST_AT_ONCE", 100)
    assert max(entry.size for entry in entries_of(killed)) > 8 * 100
    PATH.write_bytes(killed)
    viewer = Viewer()
    viewer.poll()
    assert len(viewer.chunks) == 3
    assert_rows_are_those_of_load(viewer)


def test_of_a_long_file_of_a_killed_writer_that_is_said_when_all_is_read(monkeypatch, killed):
    monkeypatch.setattr(follow, "_MOST_AT_ONCE", 100)
    PATH.write_bytes(killed)
    viewer, updates = Viewer(is_locked=lambda file: False), []
    while not updates or updates[-1].behind:
        updates.append(viewer.follower.poll())
        viewer.now += 10.0
    assert len(updates) > 2
    assert {update.state for update in updates[:-1]} == {FollowState.GROWING}
    assert updates[-1].state == FollowState.TRUNCATED


def test_of_a_file_that_does_not_change_only_the_end_is_read(monkeypatch, killed):
    PATH.write_bytes(killed)
    viewer = Viewer(is_locked=lambda file: True)
    viewer.poll()
    viewer.poll()
    before = viewer.provisional
    read, real = [], follow.read
    monkeypatch.setattr(follow, "read", lambda *args: read.append(real(*args)) or read[-1])
    for _ in range(3):
        viewer.now += 0.5
        update = viewer.poll()
    assert (update.chunks, update.provisional) == ([], before)
    assert (update.state, update.quiet) == (FollowState.GROWING, 1.5)
    # Only whether it ends like a closed file.
    assert sum(map(len, read)) < 3 * 30


def test_what_is_written_within_a_tick_of_the_files_clock_is_seen(killed):
    """The size and the time of the file are those of the poll before."""
    *_, last, _ = entries_of(killed)
    PATH.write_bytes(killed[: last.start] + bytes(len(killed) - last.start))
    status = os.stat(PATH)
    viewer = Viewer()
    viewer.poll()
    assert len(viewer.chunks) == 2
    PATH.write_bytes(killed)
    os.utime(PATH, ns=(status.st_atime_ns, status.st_mtime_ns))
    viewer.poll()
    assert len(viewer.chunks) == 3
    assert_rows_are_those_of_load(viewer)


def test_a_closed_file_may_end_with_what_was_provisional(killed):
    PATH.write_bytes(killed + container.directory(entries_of(killed), len(killed)))
    assert load(PATH).is_complete
    viewer = Viewer()
    assert viewer.poll().state == FollowState.COMPLETE
    assert_rows_are_those_of_load(viewer)


@pytest.mark.parametrize("closed", [False, True])
def test_a_writer_that_comes_while_the_list_of_locks_is_read_is_seen(killed, closed):
    """It had written, and was done, before the list was read."""

    def is_locked(file):
        if PATH.read_bytes() != killed:
            PATH.write_bytes(killed)
        return False

    end = b"PK\5\6" + bytes(container.END_SIZE - 4)
    PATH.write_bytes(killed[:-100] + end if closed else killed[:-100])
    viewer = Viewer(is_locked=is_locked)
    assert viewer.wait().state == FollowState.GROWING
    # There is no writer any more.
    viewer.poll()
    assert viewer.wait().state == FollowState.TRUNCATED
    assert_rows_are_those_of_load(viewer)


def test_what_cannot_be_opened_or_read_is_reported_and_tried_again(monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    save(example(5), PATH)
    viewer = Viewer()
    with monkeypatch.context() as patch:
        patch.setattr(follow, "open_without_blocking", refuse)
        update = viewer.poll()
    assert update.state == FollowState.NOT_A_RECORDING
    assert update.problem == "cannot read run.diag: Permission denied"
    with monkeypatch.context() as patch:
        patch.setattr(follow, "read", refuse)
        update = viewer.poll()
    assert (update.state, update.problem) == (FollowState.WAITING, "Permission denied")
    update = viewer.poll()
    assert (update.state, update.fresh) == (FollowState.COMPLETE, True)
