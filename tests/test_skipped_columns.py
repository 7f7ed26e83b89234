"""Columns that a reader does not want are passed over, and the others come as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dask_diag import load
from dask_diag.live.model import COLUMNS, PROVISIONAL_COLUMNS
from dask_diag.model.codes import State
from dask_diag.storage.chunks import decode_chunk
from dask_diag.storage.codec import (
    KEY,
    NUMBERS,
    EarlierChunks,
)
from dask_diag.storage.container import CHUNK_HEADER_SIZE, read_entries
from dask_diag.storage.follow import Follower
from dask_diag.storage.write import Writer

from .recordings import chunks_of_example, filled_table
from .test_keys_of_results import encoded, results_of, tasks_of, tokens

pytestmark = [pytest.mark.leaves_files, pytest.mark.once]


def with_collected(tasks):
    """Stored relative to when they stopped, and that to when they started."""
    columns = {name: tasks[name] for name in tasks.columns}
    return filled_table("tasks", {**columns, "collected": tasks.stop + 1e-6})


KEYS = [tokens(300) for _ in range(4)]
CHUNKS = [
    replace(
        chunk,
        tasks=tasks_of(keys) if n % 2 else with_collected(chunk.tasks),
        # Of some chunks all keys are those of tasks, and of some not.
        cached_results=results_of([*KEYS[n - 1][:150], *["other"] * (n % 2)], chunk.tasks.start),
    )
    for n, (keys, chunk) in enumerate(zip(KEYS, chunks_of_example(2000), strict=True))
]
PAYLOADS = encoded(CHUNKS)
TABLES = sorted({name for chunk in CHUNKS for name, table in chunk.tables().items() if len(table)})


COLUMNS_OF = {name: sorted(CHUNKS[0].tables()[name].columns) for name in TABLES}


WANTED = {f"{name}.{column}": {name: {column}} for name in TABLES for column in COLUMNS_OF[name]}


WANTED |= {
    "every second": {name: set(COLUMNS_OF[name][::2]) for name in TABLES},
    "no columns": {name: set() for name in TABLES},
    "no tables": {},
}
WANTED["every second"] = {name: set(COLUMNS_OF[name][::2]) for name in TABLES}
WANTED["no columns"] = {name: set() for name in TABLES}
WANTED["no tables"] = {}


@pytest.mark.parametrize("columns", WANTED.values(), ids=WANTED)
def test_wanted_columns_are_the_same_with_and_without_the_others(columns, chunks_in_full):
    some_of_it = EarlierChunks()
    for payload, expected in zip(PAYLOADS, chunks_in_full, strict=True):
        decoded = decode_chunk(memoryview(payload), some_of_it, columns)
        assert decoded.values == expected.values
        assert decoded.tables.keys() == expected.tables.keys() & columns.keys()
        for name, table in decoded.tables.items():
            # Of tasks, what results refer to is there, too.
            more = {KEY, *NUMBERS} if name == "tasks" else set()
            assert columns[name] <= set(table.columns) <= columns[name] | more
            for column in table.columns:
                values, wanted = table[column], expected.tables[name][column]
                assert type(values) is type(wanted)
                assert repr(values.tolist()) == repr(wanted.tolist())


@pytest.fixture(scope="module")
def chunks_in_full():
    preceding = EarlierChunks()
    return [decode_chunk(memoryview(payload), preceding) for payload in PAYLOADS]


def test_damage_anywhere_in_a_chunk_is_noticed_live():
    """In columns that no live view shows, too."""
    with Writer("run.diag") as writer:
        for chunk in CHUNKS:
            writer.append(chunk)
    original = Path("run.diag").read_bytes()
    damaged = [entry for entry, _ in read_entries(memoryview(original))][3]
    begin = damaged.start + CHUNK_HEADER_SIZE
    for position in range(begin, damaged.stop, (damaged.stop - begin) // 50):
        changed = bytearray(original)
        changed[position] ^= 1
        Path("run.diag").write_bytes(changed)
        follower = Follower("run.diag", columns=COLUMNS, provisional_columns=PROVISIONAL_COLUMNS)
        update = follower.poll()
        assert len(update.chunks) == 2
        assert update.state == load("run.diag").state == State.DAMAGED
