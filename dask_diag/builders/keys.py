"""From keys to columns: their texts, and the functions that they name.

Each text is a head, which names the function, and a tail: see `PrefixStrings`. Keys of a common
kind are made into text many at once: one by one, it would take longer than everything else, and
thousands go through one call of a builtin. Each release of the GIL between calls would make the
computation's threads wait to get it back, and that costs more than the work.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from dask_diag.capture.tasks.keys import function_of_key, text_of_key
from dask_diag.columns import Categorical, IntArray, PrefixStrings, concatenate

__all__ = ["NO_KEYS", "KeyColumns", "keys_columns", "recoded"]

H = TypeVar("H", bound=Hashable)

_KEYS_AT_ONCE = 2048
"""So that an odd one slows down few, and all are in the processor's cache while they are read."""
_NO_NAME = ""
_WORDS = re.compile(r"^(?:[^-\n]*-(?:[A-Za-z]+(?:-|$))*)?", re.MULTILINE)
"""What `key_split` reads of a text with a dash: words of letters, and none after any other."""

KeyColumns = tuple[PrefixStrings, Categorical]
"""Keys as text, and the function of each."""
NO_KEYS: KeyColumns = PrefixStrings.of([]), Categorical([], [])


def keys_columns(keys: Sequence[Hashable], named: Mapping[int, str]) -> KeyColumns:
    """Keys as text, as ``str`` gives it, and the function of each.

    That is the one that `named` has by position, else the prefix of the key.
    """
    if not keys:
        return NO_KEYS
    batches = range(0, len(keys), _KEYS_AT_ONCE)
    columns = [_columns_of_few(keys[start : start + _KEYS_AT_ONCE]) for start in batches]
    texts, functions = (concatenate(column) for column in zip(*columns, strict=True))
    nameless = np.flatnonzero(functions.where(_NO_NAME)).tolist()
    names = {row: function_of_key(keys[row]) for row in nameless if row not in named}
    return texts, _renamed(functions, {**names, **named})


def _columns_of_few(keys: Sequence[Hashable]) -> KeyColumns:
    if len(set(map(type, keys))) < 2:
        return _columns_of_a_kind(keys)
    kinds, distinct = _codes_of(list(map(type, keys)))
    alike = [np.flatnonzero(kinds == kind) for kind in range(len(distinct))]
    columns = [_columns_of_a_kind([keys[row] for row in rows.tolist()]) for rows in alike]
    # Where each key came to lie when they were grouped by type: the inverse puts them in order
    # again.
    row_of = np.argsort(np.concatenate(alike))
    texts, functions = (concatenate(column)[row_of] for column in zip(*columns, strict=True))
    return texts, functions


def _columns_of_a_kind(keys: Sequence[Hashable]) -> KeyColumns:
    kind = type(keys[0])
    if kind is str and (columns := _texts_of_texts(keys)):
        texts, heads = columns
        return texts, recoded(texts.heads.codes, [head and function_of_key(head) for head in heads])
    if kind is tuple and (columns := _texts_of_tuples(keys)):
        texts, names = columns
        return texts, recoded(texts.heads.codes, [function_of_key(name) for name in names])
    return PrefixStrings.of(map(text_of_key, keys)), _functions_one_by_one(keys)


def _functions_one_by_one(keys: Sequence[Hashable]) -> Categorical:
    function_of: dict[Hashable, str] = {}
    names: list[str] = []
    for key in keys:
        head = key[0] if type(key) is tuple and key else key
        try:
            names.append(function_of[head])
        except KeyError:
            names.append(function_of.setdefault(head, function_of_key(key)))
        except TypeError:
            names.append(function_of_key(key))
    return Categorical.of(names)


def recoded(codes: IntArray, values: Sequence[str]) -> Categorical:
    """A column of these values, each once, where several codes may mean one."""
    position = {value: code for code, value in enumerate(dict.fromkeys(values))}
    code_of = np.array([position[value] for value in values], dtype=np.int64)
    return Categorical(code_of[codes], list(position))


def _renamed(column: Categorical, names: Mapping[int, str]) -> Categorical:
    """The column with other values in some rows, and none that no row has."""
    if not names:
        return column
    position = {value: code for code, value in enumerate(column.values)}
    codes = column.codes.astype(np.int64)
    codes[list(names)] = [position.setdefault(name, len(position)) for name in names.values()]
    used, codes = np.unique(codes, return_inverse=True)
    values = list(position)
    return Categorical(codes.reshape(-1), [values[code] for code in used.tolist()])


def _texts_of_tuples(keys: Sequence[Any]) -> tuple[PrefixStrings, list[str]] | None:
    """Keys such as ``("x", 1, 2)`` as ``str`` writes them, and the heads' names.

    None if not all are of that shape.
    """
    lengths, items = list(map(len, keys)), list(chain.from_iterable(keys))
    if min(lengths) < 2 or set(map(type, items)) != {str, int}:
        return None
    # The name itself is left out: each head is there once.
    patterns = {length: f"%.0s{', '.join(['%d'] * (length - 1))})" for length in set(lengths)}
    pattern = "".join(map(patterns.__getitem__, lengths))
    try:
        tails = (pattern % tuple(items)).encode()
        codes, names = _codes_of(list(map(itemgetter(0), keys)))
        heads = Categorical(codes, [f"({name!r}, " for name in names])
    except (TypeError, ValueError):
        # A text where a number was expected, or one of more digits than Python writes.
        return None
    ends = np.flatnonzero(np.frombuffer(tails, np.uint8) == ord(")"))
    return PrefixStrings.from_encoded(heads, np.diff(ends, prepend=-1), tails), names


def _texts_of_texts(keys: Sequence[Any]) -> tuple[PrefixStrings, list[str]] | None:
    """PrefixStrings such as ``"x-1"``, and their heads, of which ``""`` names no function.

    None if they hold characters that would make it difficult.
    """
    text = "\n".join(keys)
    if not text.isascii() or text.count("\n") != len(keys) - 1:
        return None
    codes, heads = _codes_of(_WORDS.findall(text))
    # A head is one of few, a tail is of one key: only tails are stored for each.
    cuts = np.array(list(map(len, heads)))[codes]
    lengths = np.fromiter(map(len, keys), np.int64, len(keys)) - cuts
    tails = "".join([key[cut:] for key, cut in zip(keys, cuts.tolist(), strict=True)])
    return PrefixStrings.from_encoded(Categorical(codes, heads), lengths, tails.encode()), heads


def _codes_of(items: Sequence[H]) -> tuple[IntArray, list[H]]:
    """For each item its position among the distinct ones, and those."""
    distinct = list(dict.fromkeys(items))
    position = {item: index for index, item in enumerate(distinct)}
    return np.fromiter(map(position.__getitem__, items), np.int64, len(items)), distinct
