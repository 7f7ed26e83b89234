"""Keys as text, many of a kind at once: one by one, it would take longer than all else.

Each text is a head, which tells the function, and a tail: see `PrefixStrings`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from dask_diag.columns import Categorical, PrefixStrings

__all__ = ["codes_of", "texts_of_texts", "texts_of_tuples"]

_WORDS = re.compile(r"^(?:[^-\n]*-(?:[A-Za-z]+(?:-|$))*)?", re.MULTILINE)
"""What `key_split` reads of a text with a dash: words of letters, and none after any other."""


def texts_of_tuples(keys: Sequence[tuple[Any, ...]]) -> tuple[PrefixStrings, list[str]] | None:
    """Keys such as ``("x", 1, 2)`` as ``str`` writes them, and the heads' names.

    None if not all are of that shape.
    """
    lengths, items = list(map(len, keys)), list(chain.from_iterable(keys))
    if min(lengths) < 2 or set(map(type, items)) != {str, int}:
        return None
    # The name itself is left out: each head is there once.
    patterns = {length: f"%.0s{', '.join(['%d'] * (length - 1))})" for length in set(lengths)}
    whole = "".join(map(patterns.__getitem__, lengths))
    try:
        tails = (whole % tuple(items)).encode()
        codes, names = codes_of(list(map(itemgetter(0), keys)))
        heads = Categorical(codes, [f"({name!r}, " for name in names])
    except (TypeError, ValueError):
        # A text where a number was expected, or one of more digits than Python writes.
        return None
    ends = np.flatnonzero(np.frombuffer(tails, np.uint8) == ord(")"))
    return PrefixStrings.from_encoded(heads, np.diff(ends, prepend=-1), tails), names


def texts_of_texts(keys: Sequence[str]) -> tuple[PrefixStrings, list[str]] | None:
    """PrefixStrings such as ``"x-1"``, and their heads, of which ``""`` names no function.

    None if they hold characters that would make it difficult.
    """
    whole = "\n".join(keys)
    if not whole.isascii() or whole.count("\n") != len(keys) - 1:
        return None
    codes, heads = codes_of(_WORDS.findall(whole))
    cuts = np.array(list(map(len, heads)))[codes]
    lengths = np.fromiter(map(len, keys), np.int64, len(keys)) - cuts
    tails = "".join([key[cut:] for key, cut in zip(keys, cuts.tolist(), strict=True)])
    return PrefixStrings.from_encoded(Categorical(codes, heads), lengths, tails.encode()), heads


def codes_of(items: Sequence[Any]) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """For each item its position among the distinct ones, and those."""
    distinct = list(dict.fromkeys(items))
    position = {item: place for place, item in enumerate(distinct)}
    return np.fromiter(map(position.__getitem__, items), np.int64, len(items)), distinct
