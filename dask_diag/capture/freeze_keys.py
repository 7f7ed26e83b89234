"""From keys to columns: their texts, and the functions that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dask.utils import key_split

from dask_diag.columns import Labels, Texts

__all__ = ["functions_column", "keys_column"]


def keys_column(keys: Iterable[Any]) -> Texts:
    """Keys as text, as ``str`` gives it."""
    return Texts.of(_text_of(key) for key in keys)


def _text_of(key: Any) -> str:
    try:
        return str(key)
    except Exception:
        return f"<{type(key).__name__}>"


def function_of_key(key: Any) -> str:
    """The prefix that dask's collections give to the keys of one function."""
    return str(key_split(key))


def functions_column(keys: Sequence[Any], named: Mapping[int, str]) -> Labels:
    """The function of each key: as `named` by position, else the prefix of the key."""
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
