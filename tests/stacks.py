"""Names that files import from here; they are in `recordings`."""

from .recordings import (
    BUILT_IN,
    CORE,
    EMPTY,
    LEAF,
    MAIN,
    MAIN_LATER,
    NAN,
    known_stacks,
    recording_of_stacks,
    with_stacks,
)

__all__ = [
    "BUILT_IN",
    "CORE",
    "EMPTY",
    "LEAF",
    "MAIN",
    "MAIN_LATER",
    "NAN",
    "known_stacks",
    "recording_of_stacks",
    "with_stacks",
]
