"""The tasks that a recording has already, which what is written later refers to by their rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_diag.capture.increments import TakenTasks
from dask_diag.capture.tasks_table import keys_columns

parts = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=6)


@given(parts, st.integers(0, 2**32))
def test_rows_are_found_in_whichever_part_they_are(parts, seed):
    taken_tasks, keys, positions, position = TakenTasks(), [], [], 0
    for count, others in parts:
        new = [(f"f{(len(keys) + n) % 3}-1", len(keys) + n) for n in range(count)]
        taken_tasks.add(position, keys_columns(new, {})[1])
        keys += new
        positions += range(position, position + count)
        position += count + others
    assert len(taken_tasks) == len(keys)
    assert taken_tasks.functions().tolist() == [key[0][:2] for key in keys]
    rows = np.random.default_rng(seed).integers(0, max(len(keys), 1), 10 if keys else 0)
    assert taken_tasks.positions_of(rows).tolist() == [positions[row] for row in rows]
