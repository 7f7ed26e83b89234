"""Names of layers and expressions, with the places of the user's program that made them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from itertools import islice
from typing import NamedTuple, TypeVar, cast

from dask_diag.capture.lines.sites import Site, Sites
from dask_diag.model.codes import LineSource
from dask_diag.model.graph import TOKEN
from dask_diag.system.interpreter import has_gil


class Origin(NamedTuple):
    """Where a step was built, if known, and how that is known: see `LineSource`."""

    site: Site | None
    how: str


BEFORE = Origin(None, LineSource.BEFORE)

_COPY = 33
"""Length of what dask adds to names of collections that it hides from the optimizer: a dash and 32
digits."""
_FUSED_INDEX = "_."
"""Begins what `rewrite_blockwise` adds to names of the steps of a fused task."""


class NamedSites:
    """Sites by name, of which the oldest are forgotten if there are many.

    Any thread adds a name, in one step of a dict; the later line counts.

    Parameters
    ----------
    most : int
        Names that are remembered at least; at most there are twice as many.

    Attributes
    ----------
    existing : set
        Names that were there when the capture began: they count where no line is known.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._recent: dict[Hashable, Site | None] = {}
        self._older: dict[Hashable, Site | None] = {}
        self._tokens: dict[str, Site | None] = {}
        self._indexed = 0
        self.existing: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._recent or name in self._older

    def unknown(self, names: Iterable[Hashable], of_copies: bool = False) -> list[Hashable]:
        """The names that are not known, nor made of known ones where they are names of copies."""
        recent, older = self._recent, self._older
        unknown = [name for name in names if name not in recent and name not in older]
        if unknown and of_copies:
            return [one for one in unknown if not any(map(self.__contains__, _alike(one)[1:]))]
        return unknown

    def note(self, name: Hashable, site: Site | None) -> None:
        """Note a name; a site of None says that it was there before."""
        recent = self._recent
        recent[name] = site
        if len(recent) >= self._most:
            self._older, self._recent, self._indexed = recent, {}, 0

    def note_new(self, name: Hashable, site: Site | None) -> None:
        """Note a name that is not known; one that was there before is like no known name either."""
        if name not in self and (site is not None or self.origin(name) is None):
            self.note(name, site)

    def get(self, name: Hashable) -> Site | None:
        """The site of a name; None if not known."""
        return self._recent.get(name) or self._older.get(name)

    def origin(self, name: Hashable) -> Origin | None:
        """Where a name, or one that dask made of it, is from; None if not known."""
        recent, older = self._recent, self._older
        for known in _alike(name):
            if known in recent or known in older:
                site = recent.get(known) or older.get(known)
                return BEFORE if site is None else Origin(site, LineSource.NAME)
        if name in self.existing:
            return BEFORE
        token = TOKEN.search(name) if type(name) is str else None
        if token is None:
            return None
        self._index()
        site = self._tokens.get(token[0], _UNKNOWN)
        if site is _UNKNOWN:
            return None
        return BEFORE if site is None else Origin(site, LineSource.TOKEN)

    def _index(self) -> None:
        """Add the tokens of names that were noted since."""
        # With a GIL the new ones are copied in one step: to copy all would take as long as to note
        # them, for each computation.
        recent = self._recent if has_gil() else self._recent.copy()
        new = max(0, len(recent) - self._indexed)
        self._indexed = len(recent)
        for name, site in list(islice(reversed(recent.items()), new))[::-1]:
            token = TOKEN.search(name) if type(name) is str else None
            if token is not None:
                self._tokens.setdefault(token[0], site)
        if len(self._tokens) > 4 * self._most:
            self._tokens.clear()


def plain_name(name: Hashable) -> Hashable:
    """The name of a step without what a fused task adds to it."""
    return name.partition(_FUSED_INDEX)[0] if type(name) is str else name


def _alike(name: Hashable) -> tuple[Hashable, ...]:
    """A name, and the names of which dask may have made it."""
    if type(name) is not str:
        return (name,)
    plain = name.partition(_FUSED_INDEX)[0]
    # That it ends in digits need not be looked at: without a copy there is no such name.
    return (name, plain, plain[:-_COPY]) if plain[-_COPY : 1 - _COPY] == "-" else (name, plain)


_UNKNOWN = Site([], [], "")
_MOST_SHARED = 10_000
_MOST_FAULTS = 5
T = TypeVar("T")


class Capture:
    """Notes the line of the user's that makes a layer or an expression.

    Parameters
    ----------
    most : int
        Names that are remembered at least.
    packages : collection of str
        Names of installed packages whose lines are the user's.

    Attributes
    ----------
    names : NamedSites
    faults : set of str
        Errors, each once; nothing is raised into the user's program.
    here, is_users : callable
        The site of a frame and its callers, and whether a frame is of the user's program: see
        `Sites`.
    """

    def __init__(self, most: int, packages: Collection[str] = ()) -> None:
        self.names = NamedSites(most)
        self.faults: set[str] = set()
        sites = Sites(packages)
        self.here, self.is_users = sites.here, sites.is_users
        self._shared: dict[Hashable, object] = {}

    def shared(self, key: Hashable, value: T) -> T:
        """The first value that was given for a key: few objects for many computations."""
        if len(self._shared) > _MOST_SHARED:
            self._shared.clear()
        return cast("T", self._shared.setdefault(key, value))

    def fault(self, error: Exception) -> None:
        """Note an error."""
        if len(self.faults) < _MOST_FAULTS:
            self.faults.add(f"{type(error).__name__}: {error}")


class Now:
    """The capture that goes on, if any; what is replaced in dask reads it at each call."""

    capture: Capture | None = None
    why_not = ""
