"""Whether Python runs with a GIL, and what holds between threads without one."""

from __future__ import annotations

import sys
import sysconfig
from array import array
from collections.abc import Iterable
from threading import RLock
from typing import Any

from dask_diag.model.codes import GIL_ON, NO_GIL

_MAY_LACK_ONE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def has_gil() -> bool:
    """Whether threads take turns now: always, but in a free-threaded build.

    A module that does not declare support of such a build turns the GIL on for good.
    """
    return not _MAY_LACK_ONE or bool(sys.__dict__["_is_gil_enabled"]())


def build() -> str:
    """What sets a free-threaded build apart, behind a comma; empty for any other build."""
    if not _MAY_LACK_ONE:
        return ""
    why = " (set so, or by a module that does not support its absence)" if has_gil() else ""
    return f"{GIL_ON if has_gil() else NO_GIL}{why}"


class LockedArray(array):  # type: ignore[type-arg]
    """An array that a thread may append to while another one slices it, without a GIL.

    There, an array is moved in memory by the one while the other reads it. A slice is a plain
    array, and a copy.
    """

    _lock: RLock

    def __new__(cls, typecode: str, values: Iterable[Any] = ()) -> LockedArray:
        """Make an array with a lock."""
        made = super().__new__(cls, typecode, values)
        # A signal may interrupt a thread that holds it, and compute.
        made._lock = RLock()
        return made

    def append(self, value: Any) -> None:
        """Append a value."""
        with self._lock:
            super().append(value)

    def extend(self, values: Iterable[Any]) -> None:
        """Append values, in one step."""
        read = array(self.typecode, values)
        with self._lock:
            super().extend(read)

    def __getitem__(self, index: Any) -> Any:
        with self._lock:
            return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        with self._lock:
            super().__setitem__(index, value)

    def __delitem__(self, index: Any) -> None:
        with self._lock:
            super().__delitem__(index)


def growing_array(typecode: str, values: Iterable[Any] = ()) -> array[Any]:
    """An array that grows while other threads read slices of it."""
    has_locks = _MAY_LACK_ONE and not has_gil()
    return LockedArray(typecode, values) if has_locks else array(typecode, values)
