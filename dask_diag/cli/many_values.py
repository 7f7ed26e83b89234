"""Options that take all file names that follow them, as a shell writes for ``--before a*.diag``."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator

import click

__all__ = ["ManyValues", "expanded"]


class ManyValues(click.Command):
    """A command whose options of type `multiple` may be followed by several values each."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Understand the arguments: each of several values gets the option's name."""
        names = {
            name
            for option in self.params
            if isinstance(option, click.Option) and option.multiple
            for name in option.opts
        }
        return super().parse_args(ctx, list(_one_value_each(args, names)))


def _one_value_each(args: Iterable[str], names: set[str]) -> Iterator[str]:
    current, is_first = None, False
    for arg in args:
        if arg.startswith("-") and arg != "-":
            name, equals, _ = arg.partition("=")
            current, is_first = (name if name in names else None), not equals
            yield arg
        elif current is None or is_first:
            is_first = False
            yield arg
        else:
            yield from (current, arg)


def expanded(paths: Iterable[str]) -> list[str]:
    """The files that patterns match, in order, where no shell has done that; other paths as is."""
    files: list[str] = []
    for path in paths:
        is_pattern = glob.has_magic(path) and not os.path.lexists(path)
        files += (sorted(glob.glob(path)) or [path]) if is_pattern else [path]
    return files
