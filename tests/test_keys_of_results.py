"""Keys of results are stored as rows of tasks, and come back as they were."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_diag import load
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.storage import codec
from dask_diag.storage.chunks import decode_chunk, encode_chunk, joined
from dask_diag.storage.codec import EarlierChunks, RecentTasks
from dask_diag.storage.follow import Follower
from dask_diag.storage.write import Writer

from .recordings import NOTHING, assert_same, filled_table

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]

RNG = np.random.default_rng(5)


def tasks_of(keys, collected=None):
    count = len(keys)
    times = np.arange(count) * 1.0 if collected is None else collected
    return filled_table(
        "tasks",
        {
            "key": PrefixStrings.of(keys),
            "function": Categorical.of(["f"] * count),
            "collected": times,
            "nbytes": np.arange(count) * 16.0,
        },
    )


def results_of(keys, start=None):
    count = len(keys)
    times = np.arange(count) * 1.0 if start is None else start[:count]
    # Released together.
    stop = np.full(count, times.max(initial=0.0) + 1)
    columns = {"start": times, "stop": stop, "metric": np.arange(count) * 16.0}
    return filled_table(
        "cached_results",
        {"key": PrefixStrings.of(keys), "function": Categorical.of(["f"] * count), **columns},
    )


def chunk(tasks=(), results=(), collected=None, start=None):
    return replace(
        NOTHING,
        tasks=tasks_of(tasks, collected),
        cached_results=results_of(results, start),
    )


def tokens(count):
    return [f"f-{RNG.bytes(16).hex()}" for _ in range(count)]


def encoded(chunks):
    written = EarlierChunks()
    return [encode_chunk(part, 1, written) for part in chunks]


def assert_come_back(chunks):
    payloads, read = encoded(chunks), EarlierChunks()
    for payload, expected in zip(payloads, chunks, strict=True):
        assert_same(joined([decode_chunk(memoryview(payload), read)], []), expected)
    return payloads


some_keys = st.lists(
    st.one_of(
        st.sampled_from(["x-1", "x-2", "", "-", "ä-é", "('x', 1)", "('x', 2)", "\ud800"]),
        st.text(max_size=5),
        st.integers(0, 30).map(lambda n: f"x-{n}"),
    ),
    max_size=40,
)


@given(st.lists(st.tuples(some_keys, some_keys), min_size=1, max_size=5))
def test_any_keys_come_back(parts):
    assert_come_back([chunk(tasks, results) for tasks, results in parts])


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_keys_come_back_in_any_order_and_with_others_between_them(seed, share):
    rng = np.random.default_rng(seed)
    keys, chunks = [f"x-{n}" for n in range(60)], []
    for first in range(0, 60, 20):
        seen = [keys[n] if rng.random() < share else f"y-{n}" for n in rng.permutation(first + 20)]
        start = rng.integers(0, 10**9, len(seen)) / 1e6
        chunks.append(chunk(keys[first : first + 20], seen, start=start))
    assert_come_back(chunks)


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_the_token_of_a_key_is_in_the_file_once(delay):
    rows, count = 500, 6
    keys = [tokens(rows) for _ in range(count)]
    results = [keys[n - delay] if n >= delay else [] for n in range(count)]
    collected = np.sort(RNG.integers(10**12, 10**12 + 10**6, rows)) / 1e6
    parts = zip(keys, results, strict=True)
    chunks = [chunk(*part, collected=collected, start=collected + 20e-6) for part in parts]
    without = [replace(part, cached_results=NOTHING.cached_results) for part in chunks]
    sizes = [sum(map(len, assert_come_back(part))) for part in (chunks, without)]
    assert sizes[1] > 16 * rows * count
    assert (sizes[0] - sizes[1]) / (rows * (count - delay)) < 1.5


def test_keys_of_which_no_task_was_recorded_are_there_in_full():
    keys = tokens(500)
    first = chunk(tokens(500), keys)
    assert len(assert_come_back([first])[0]) > 16 * 1000


def test_what_takes_less_time_in_full_is_not_searched_for():
    short, long = [f"x-{n}" for n in range(3000)], tokens(3000)
    for keys, is_searched in ((short[:2000], True), (short, False), (long, True)):
        rows = RecentTasks().plus(tasks_of(keys)).rows_of(PrefixStrings.of(keys))
        assert (rows is not None) == is_searched
        assert_come_back([chunk(keys, keys)])


def test_the_last_task_of_a_key_is_its_task_and_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(codec, "_MOST_CHUNKS", 2)
    monkeypatch.setattr(codec, "_MOST_ROWS", 5)
    recent = RecentTasks()
    for keys in (["a-1", "a-2"], ["a-3", "a-1"], ["a-4"]):
        recent = recent.plus(tasks_of(keys))
    wanted = PrefixStrings.of(["a-1", "a-2", "a-3", "a-4"])
    assert recent.rows_of(wanted).tolist() == [1, 3, 2, 0]
    assert recent.rows_of(PrefixStrings.of(["a-1", "a-5"])) is None
    limited = recent.limited()
    assert limited.rows_of(wanted) is None
    assert limited.rows_of(PrefixStrings.of(["a-1", "a-3", "a-4"])).tolist() == [1, 2, 0]
    many = recent.plus(tasks_of([f"b-{n}" for n in range(6)])).limited()
    assert many.rows_of(PrefixStrings.of(["b-0"])) is None
    assert many.rows_of(PrefixStrings.of(["a-4"])) is None


def test_a_file_is_followed_and_truncated_anywhere(tmp_path):
    path, keys = tmp_path / "run.diag", [tokens(50) for _ in range(5)]
    chunks = [chunk(keys[n], keys[n - 1] if n else []) for n in range(5)]
    follower, followed, contents = Follower(path), [], []
    with Writer(path) as writer:
        for part in chunks:
            writer.append(part, chunk(["running-1"], keys[0]))
            update = follower.poll()
            followed += update.chunks
            assert joined([update.provisional], []).cached_results.key.tolist() == keys[0]
            contents.append(path.read_bytes())
    for count, content in enumerate(contents, 1):
        path.write_bytes(content)
        results = load(path).cached_results.key.tolist()
        expected = [key for keys_of_part in keys[: count - 1] for key in keys_of_part]
        assert results == [*expected, *keys[0]]
    expected = [key for keys_of_part in keys[:-1] for key in keys_of_part]
    assert joined(followed, []).cached_results.key.tolist() == expected


def test_what_refers_to_tasks_that_are_not_there_is_damaged():
    keys = tokens(50)
    _, second = encoded([chunk(keys), chunk(["x-1"], keys)])
    with pytest.raises(zlib.error):
        decode_chunk(memoryview(second))
    read = EarlierChunks()
    read.head = decode_head(chunk(keys))
    with pytest.raises(ValueError, match="expected rows of 1 tasks"):
        decode_chunk(memoryview(second), read)


def decode_head(recording):
    written = EarlierChunks()
    encode_chunk(recording, 1, written)
    return written.head
