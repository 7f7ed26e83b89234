"""The tasks that a recording has already, which what is written later refers to by their rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_diag.capture.increments import RowPositions

parts = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=6)


@given(parts, st.integers(0, 2**32))
def test_rows_are_found_in_whichever_part_they_are(parts, seed):
    rows_taken, positions, position = RowPositions(), [], 0
    for count, others in parts:
        rows_taken.add(count, position)
        positions += range(position, position + count)
        position += count + others
    assert len(rows_taken) == len(positions)
    # Three more are provisional, and come after all others.
    positions += range(position, position + 3)
    rows = np.random.default_rng(seed).integers(0, len(positions), 10)
    assert rows_taken.of(rows, after=position).tolist() == [positions[row] for row in rows]
