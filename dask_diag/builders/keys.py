"""From keys to columns: their texts, and the functions that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dask_diag.builders.many_keys import codes_of, texts_of_texts, texts_of_tuples
from dask_diag.capture.tasks.task_log import function_of_key, text_of_key
from dask_diag.columns import Categorical, PrefixStrings, concatenate

__all__ = ["keys_columns", "recoded"]

_KEYS_AT_ONCE = 2048
"""So that an odd one slows down few, and all are near while they are looked at."""
_NO_NAME = ""

Columns = tuple[PrefixStrings, Categorical]


def keys_columns(keys: Sequence[Any], named: Mapping[int, str]) -> Columns:
    """Keys as text, as ``str`` gives it, and the function of each.

    That is the one that `named` has by position, else the prefix of the key.
    """
    batches = range(0, max(len(keys), 1), _KEYS_AT_ONCE)
    columns = [_columns_of_few(keys[start : start + _KEYS_AT_ONCE]) for start in batches]
    texts, functions = (concatenate(column) for column in zip(*columns, strict=True))
    nameless = np.flatnonzero(functions.where(_NO_NAME)).tolist()
    names = {row: function_of_key(keys[row]) for row in nameless if row not in named}
    return texts, _renamed(functions, {**names, **named})


def _columns_of_few(keys: Sequence[Any]) -> Columns:
    if len(set(map(type, keys))) < 2:
        return _columns_of_a_kind(keys)
    kinds, distinct = codes_of(list(map(type, keys)))
    alike = [np.flatnonzero(kinds == kind) for kind in range(len(distinct))]
    columns = [_columns_of_a_kind([keys[row] for row in rows.tolist()]) for rows in alike]
    place = np.argsort(np.concatenate(alike))
    texts, functions = (concatenate(column)[place] for column in zip(*columns, strict=True))
    return texts, functions


def _columns_of_a_kind(keys: Sequence[Any]) -> Columns:
    kind = type(keys[0]) if keys else None
    if kind is str and (found := texts_of_texts(keys)):
        texts, heads = found
        return texts, recoded(texts.heads.codes, [head and function_of_key(head) for head in heads])
    if kind is tuple and (found := texts_of_tuples(keys)):
        texts, names = found
        return texts, recoded(texts.heads.codes, [function_of_key((name,)) for name in names])
    return PrefixStrings.of(map(text_of_key, keys)), _functions_one_by_one(keys)


def _functions_one_by_one(keys: Sequence[Any]) -> Categorical:
    known: dict[Any, str] = {}
    names: list[str] = []
    for key in keys:
        head = key[0] if type(key) is tuple and key else key
        try:
            names.append(known[head])
        except KeyError:
            names.append(known.setdefault(head, function_of_key(key)))
        except TypeError:
            names.append(function_of_key(key))
    return Categorical.of(names)


def recoded(codes: np.ndarray[Any, Any], values: Sequence[str]) -> Categorical:
    """A column of these values, each once, where several codes may stand for one."""
    place = {value: code for code, value in enumerate(dict.fromkeys(values))}
    code_of = np.array([place[value] for value in values], dtype=np.int64)
    return Categorical(code_of[codes], list(place))


def _renamed(column: Categorical, names: Mapping[int, str]) -> Categorical:
    """The column with other values in some rows, and none that no row has."""
    if not names:
        return column
    place = {value: code for code, value in enumerate(column.values)}
    codes = column.codes.astype(np.int64)
    codes[list(names)] = [place.setdefault(name, len(place)) for name in names.values()]
    used, codes = np.unique(codes, return_inverse=True)
    values = list(place)
    return Categorical(codes.reshape(-1), [values[code] for code in used.tolist()])
