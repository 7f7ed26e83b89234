"""From keys to columns: their texts, and the functions that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from dask_diag.capture.tasks.kept import function_of_key, text_of_key
from dask_diag.columns import Labels, Texts, concatenate
from dask_diag.freezing.many_keys import tuples_as_text

__all__ = ["functions_column", "keys_columns", "recoded"]

_KEYS_AT_ONCE = 2048
"""So that most are in company of their kind, and all are near while they are looked at."""


def keys_columns(keys: Sequence[Any], named: Mapping[int, str]) -> tuple[Texts, Labels]:
    """Keys as text, as ``str`` gives it, and the function of each."""
    if len(keys) > _KEYS_AT_ONCE and not named:
        batches = range(0, len(keys), _KEYS_AT_ONCE)
        columns = [keys_columns(keys[start : start + _KEYS_AT_ONCE], {}) for start in batches]
        return concatenate([c[0] for c in columns]), concatenate([c[1] for c in columns])
    at_once = None if named else tuples_as_text(keys)
    if at_once is None:
        return Texts.of(map(text_of_key, keys)), functions_column(keys, named)
    texts, names = at_once
    functions = [function_of_key((name,)) for name in names]
    return texts, recoded(texts.heads.codes, functions)


def recoded(codes: np.ndarray[Any, Any], values: Sequence[str]) -> Labels:
    """A column of these values, each once, where several codes may stand for one."""
    place = {value: code for code, value in enumerate(dict.fromkeys(values))}
    code_of = np.array([place[value] for value in values], dtype=np.int64)
    return Labels(code_of[codes], list(place))


def _functions_of_named(heads: Sequence[str], keys: Sequence[Any]) -> Labels:
    """The functions of keys that are tuples with a text at their head."""
    example = dict(zip(heads, keys, strict=True))
    code_of = {head: code for code, head in enumerate(example)}
    codes = np.fromiter(map(code_of.__getitem__, heads), np.int64, len(keys))
    return recoded(codes, [function_of_key(key) for key in example.values()])


def functions_column(keys: Sequence[Any], named: Mapping[int, str]) -> Labels:
    """The function of each key: as `named` by position, else the prefix of the key."""
    if not named and set(map(type, keys)) == {tuple} and all(keys):
        heads = list(map(itemgetter(0), keys))
        if set(map(type, heads)) == {str}:
            return _functions_of_named(heads, keys)
    prefixes: dict[Any, str] = {}
    names: list[str] = []
    for row, key in enumerate(keys):
        if row in named:
            names.append(named[row])
            continue
        head = key[0] if type(key) is tuple and key else key
        try:
            names.append(prefixes[head])
        except KeyError:
            names.append(prefixes.setdefault(head, function_of_key(key)))
        except TypeError:
            names.append(function_of_key(key))
    return Labels.of(names)
