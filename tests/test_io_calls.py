"""Tasks that load the same again, or commit in a loop: what is known of them, and when nothing is."""

import functools
import os
import pickle
import random
import sys
import time
from functools import partial
from types import SimpleNamespace

import dask
import dask.bag as db
import pytest

from dask_diag import Profiler, SamplingProfiler, combine

from .recordings import by_code

pytestmark = [
    pytest.mark.leaves_files,
    pytest.mark.once,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no places of calls"),
]


class Large:
    """Loads like a large file: for long, without a frame of its own."""

    def __reduce__(self):
        return time.sleep, (0.1,)


def load(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def load_of_several_lines(path):
    with open(path, "rb") as file:
        return pickle.load(
            file,
            fix_imports=True,
        )


def load_text(text, number):
    return pickle.loads(text), number


def load_part(path, place):
    with open(path, "rb") as file:
        file.seek(place)
        return pickle.load(file)


def load_open(file):
    return pickle.load(file)


def opened(path):
    with open(path, "rb") as file:
        return load_open(file)


def load_words(path):
    words = {}
    with open(path) as file:
        # Where each line is read by itself, the GIL is given up so often that there are few samples.
        for line in file.read().splitlines():
            word, *values = line.split()
            words[word] = [float(value) for value in values]
    return words


def read_with_own_function(path, number):
    return len(load_words(path)) + number


LINES = [f"word{n} {n} {n}" for n in range(1_000)]
"""Of a file that a library has open, as of an array in it."""


def load_batch(path):
    total = 0
    for number in random.choices(range(len(LINES)), k=200_000):
        total += len(LINES[number].split())
    return total


def read_at_random(path, number):
    return load_batch(path) + number


def load_made_up(count):
    return sum(n * n for n in range(count))


def made_up(count):
    return load_made_up(count)


def with_locals(path):
    known = locals()
    with open(path, "rb") as file:
        loaded = pickle.load(file)
    assert known["path"] == path
    return loaded


@functools.cache
def load_once(path):
    with open(path, "rb") as file:
        return pickle.load(file)


def rewritten(path, number):
    with open(path, "wb") as file:
        pickle.dump([Large(), number], file)
    return load(path)


def seen(function, *arguments, cycle=1.0, **settings):
    """Runs and repeats of loads in a task for each of some arguments."""
    lazy = dask.delayed(function, pure=False)
    with SamplingProfiler(interval=0.003, cycle=cycle) as prof:
        dask.compute(*[lazy(*each) for each in arguments], **{"scheduler": "sync", **settings})
    rows = [row for row in prof.recording.io_calls.to_dicts() if "pickle.load" in row["call"]]
    assert rows
    return sum(row["runs"] for row in rows), sum(row["repeats"] for row in rows)


@pytest.fixture
def files(tmp_path):
    paths = [str(tmp_path / f"{number}.pickle") for number in range(6)]
    for path in paths:
        with open(path, "wb") as file:
            pickle.dump(Large(), file)
    return paths


@pytest.fixture
def words(tmp_path):
    path = str(tmp_path / "words.txt")
    with open(path, "w") as file:
        file.writelines(f"word{n} {n} {n} {n} {n}\n" for n in range(60_000))
    return path


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_a_file_that_tasks_load_again_is_known_in_each_scheduler(files, scheduler):
    runs, repeats = seen(load, *[files[:1]] * 6, scheduler=scheduler, num_workers=2)
    assert runs == 6
    assert 4 <= repeats <= 5


def test_a_call_of_several_lines_and_a_text_are_known(files):
    assert seen(load_of_several_lines, *[files[:1]] * 6) == (6, 5)
    text = pickle.dumps(Large())
    assert seen(load_text, *[(text, number) for number in range(6)]) == (6, 5)


def test_files_of_their_own_and_a_file_that_is_kept_are_not_loaded_again(files):
    # A sample may be in several cycles.
    for scheduler in ("sync", "processes"):
        paths = [[path] for path in files]
        assert seen(load, *paths, cycle=0.01, scheduler=scheduler) == (6, 0)
    runs, repeats = seen(load_once, *[files[:1]] * 12, scheduler="threads", num_workers=2)
    assert runs <= 2
    assert repeats == 0


def test_a_file_that_was_written_anew_is_another(files):
    assert seen(rewritten, *[(files[0], number) for number in range(6)]) == (6, 0)


@pytest.mark.parametrize("scheduler", ["sync", "processes"])
def test_a_function_of_the_program_that_loads_a_file_is_known(words, scheduler, retried):
    def measure():
        lazy = dask.delayed(read_with_own_function, pure=False)
        with SamplingProfiler(interval=0.003) as prof:
            dask.compute(*[lazy(words, n) for n in range(6)], scheduler=scheduler, num_workers=2)
        rows = [row for row in prof.recording.io_calls.to_dicts() if row["call"] == "load_words"]
        assert sum(row["runs"] for row in rows) == 6
        assert 4 <= sum(row["repeats"] for row in rows) <= 5
        # What is made up from a number may be made up of another random number.
        with SamplingProfiler(interval=0.003) as prof:
            dask.compute(*[dask.delayed(made_up, pure=False)(2_000_000)] * 2, scheduler="sync")
        assert not sum(row["runs"] for row in prof.recording.io_calls.to_dicts())

    retried(measure)


def test_a_file_is_looked_at_once_for_each_load_however_long_it_takes(words, monkeypatch):
    """To look at a file gives the GIL up, and the sampler may wait for it for long."""
    looked_at, stat = [], os.stat

    def counted(path, *arguments, **settings):
        looked_at.append(path)
        return stat(path, *arguments, **settings)

    monkeypatch.setattr(os, "stat", counted)
    lazy = dask.delayed(read_with_own_function, pure=False)
    with SamplingProfiler(interval=0.003):
        dask.compute(*[lazy(words, n) for n in range(6)], scheduler="sync")
    # For the call of `load_words`, and for that of `open` in it.
    assert 1 <= looked_at.count(words) <= 12


def test_a_function_that_loads_another_part_each_time_loads_nothing_again(words):
    lazy = dask.delayed(read_at_random, pure=False)
    with SamplingProfiler(interval=0.003) as prof:
        dask.compute(*[lazy(words, n) for n in range(6)], scheduler="sync")
    assert not sum(row["repeats"] for row in prof.recording.io_calls.to_dicts())


@pytest.mark.parametrize("function", [load_part, opened, with_locals])
def test_nothing_is_known_of_parts_of_files_nor_where_variables_are_read(files, function):
    """Each task may read another part."""
    arguments = (files[0], 0)[: function.__code__.co_argcount]
    assert seen(function, *[arguments] * 6) == (0, 0)


def test_the_finding_names_the_call_and_its_seconds(files):
    lines = db.from_sequence(files[:1] * 16, npartitions=16).map(load)
    with Profiler() as prof, SamplingProfiler() as stacks:
        lines.compute(scheduler="threads", num_workers=2)
    found = by_code(combine([prof, stacks]))["repeated-work"]
    assert "pickle.load at load (" in found.evidence
    assert found.numbers["repeats"].value >= 10
    took = found.numbers["took"].value
    # On a busy machine it takes longer than the sleep.
    assert 16 * 0.07 < took
    assert found.potential_saving == pytest.approx(took / 2, rel=0.2)
    assert "functools.cache" in found.advice


def commit_rows(con):
    for _ in range(10):
        con.commit()


def commit_once(con):
    con.commit()


def commit_many(con):
    for _ in range(10):
        con.executemany()
        con.commit()


@pytest.mark.parametrize(
    ("function", "is_found"), [(commit_rows, True), (commit_once, False), (commit_many, False)]
)
def test_only_a_commit_of_each_row_is_found(function, is_found):
    con = SimpleNamespace(commit=partial(time.sleep, 0.005), executemany=list)
    lazy = dask.delayed(function)
    with Profiler(waits=True) as prof, SamplingProfiler() as stacks:
        dask.compute(*[lazy(con, dask_key_name=f"post-{n}") for n in range(40)], num_workers=2)
    recording = combine([prof, stacks])
    found = by_code(recording).get("io-bound")
    assert (found is not None and "con.commit" in found.evidence) is is_found
    if is_found:
        assert found.numbers["waited"].value > 40 * 10 * 0.003
        assert "executemany" in found.advice
