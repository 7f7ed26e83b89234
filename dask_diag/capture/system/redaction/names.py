"""The names that a program uses for secrets, each within the functions that use it so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NamesOfSecrets"]

Scope = tuple[tuple[int, int], ...]
"""The functions, each within the one before, by where they begin."""


class NamesOfSecrets:
    """Names whose values are secret; what is added, and asked for, is of the function at hand."""

    def __init__(self) -> None:
        self._names: set[tuple[str, Scope]] = set()
        self._scope: Scope = ()

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        """Whether this function, or one within it, uses a name for a secret."""
        depth = len(self._scope)
        return any(name == other and scope[:depth] == self._scope for other, scope in self._names)

    def add(self, name: str) -> None:
        """The function at hand uses a name for a secret."""
        self._names.add((name, self._scope))

    @contextmanager
    def of_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[None]:
        """Within the block that function is the one at hand."""
        outer, self._scope = self._scope, (*self._scope, (node.lineno, node.col_offset))
        try:
            yield
        finally:
            self._scope = outer
