"""Which functions a finding names, and how."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_diag.columns import FloatArray
from dask_diag.model.recording import Recording

__all__ = ["MOST_NAMED", "WORTH_NAMING", "in_words", "top_functions"]

MOST_NAMED = 3
"""Functions that a finding names at most."""
WORTH_NAMING = 0.05
"""Least share of a sum that a named function has."""


def top_functions(recording: Recording, weights: FloatArray) -> list[str]:
    """The functions that have most of the tasks' `weights`, the first one first."""
    functions = recording.tasks.function
    sums = np.bincount(functions.codes, weights, minlength=len(functions.values))
    order = np.argsort(-sums, kind="stable")[:MOST_NAMED]
    return [functions.values[n] for n in order if sums[n] >= WORTH_NAMING * sums.sum() > 0]


def in_words(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
