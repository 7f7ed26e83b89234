"""Functions of dask that name layers, replaced to note the user's line while a profiler is active.

The table `_REPLACED` has all of them. Each is put back by identity. If another tool has replaced it
meanwhile, ours stays below and only passes calls on. A dask that lacks a function is recorded
without lines, and a notice says so.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import update_wrapper
from importlib import import_module
from types import FrameType
from typing import Any

import dask
from dask.base import DaskMethodsMixin
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

from dask_diag.capture.lines.names import Capture, NamedSites, Now
from dask_diag.capture.lines.sites import Site
from dask_diag.hooks.expressions import (
    MODULES,
    note_collection,
    note_existing,
    noting,
    noting_step,
)
from dask_diag.model.graph import name_of_key

ACTIVE, ALWAYS, NEVER = "active", "always", "never"
_MOST_NAMES = {ACTIVE: 1_000_000, ALWAYS: 20_000}
_lock = threading.Lock()


def capturing() -> Capture | None:
    """The capture of lines, while it goes on."""
    return Now.capture


def start_capturing() -> None:
    """Note lines from now on, unless the configuration forbids it; also after further imports.

    Nothing is raised: a notice says why lines are missing.
    """
    with _lock:
        try:
            when = dask.config.get("diag.lines.capture", ACTIVE)
            if Now.capture is not None or when != NEVER:
                _put_in_all(_MOST_NAMES.get(when, _MOST_NAMES[ACTIVE]))
        except Exception as error:
            Now.why_not = f"{type(error).__name__}: {error}"


def _put_in_all(most: int) -> None:
    """Replace what is loaded and not replaced yet."""
    replaced = [*_REPLACED, *_loaded()]
    missing = sorted(one.name for one in replaced if not one.exists())
    Now.why_not = f"this version of dask lacks {', '.join(missing)}" if missing else ""
    if missing:
        return
    if Now.capture is None:
        packages = dask.config.get("diag.lines.packages", None) or ()
        capture = Capture(most, [packages] if isinstance(packages, str) else packages)
        note_existing(capture)
        Now.capture = capture
        if _INIT_SUBCLASS not in vars(DaskMethodsMixin):
            setattr(DaskMethodsMixin, _INIT_SUBCLASS, _hear_of_collections)
    for one in replaced:
        if one not in _put_in:
            one.put_in()
            _put_in.append(one)


_INIT_SUBCLASS = "__init_subclass__"


@classmethod  # type: ignore[misc]
def _hear_of_collections(cls: Any) -> None:
    """Replace methods of collections that are imported while lines are captured."""
    super(DaskMethodsMixin, cls).__init_subclass__()
    start_capturing()


def stop_capturing() -> None:
    """Undo `start_capturing`, unless the configuration asks for lines of the whole program."""
    with _lock:
        if Now.capture is None or dask.config.get("diag.lines.capture", ACTIVE) == ALWAYS:
            return
        Now.capture = None
        while _put_in:
            _put_in.pop().take_out()
        if vars(DaskMethodsMixin).get(_INIT_SUBCLASS) is _hear_of_collections:
            delattr(DaskMethodsMixin, _INIT_SUBCLASS)


def why_no_lines() -> list[str]:
    """Sentences about lines that are missing."""
    capture = Now.capture
    faults = () if capture is None else sorted(capture.faults)
    notices = [f"some lines that built work are unknown: {fault}" for fault in faults]
    if Now.why_not:
        notices.append(f"lines that built work are unknown: {Now.why_not}")
    return notices


Make = Callable[[Any], Callable[..., object]]
"""Makes the function in place of one of dask's."""


def _found(path: str) -> Any:
    """A module, or a class in a module, such as ``dask.delayed:DelayedLeaf``; None without it."""
    module, _, name = path.partition(":")
    try:
        found = import_module(module)
    except ImportError:
        return None
    return getattr(found, name, None) if name else found


class _Replaced:
    """A function of dask that can be replaced.

    Parameters
    ----------
    owner : str or type
        The module, and the class if any, as ``dask.delayed:DelayedLeaf``; or the class.
    name : str
    make : callable
    """

    def __init__(self, owner: str | type, name: str, make: Make) -> None:
        self._owner: Any = _found(owner) if isinstance(owner, str) else owner
        self.name = f"{owner}.{name}".replace(":", ".")
        self._attribute = name
        self._make = make
        self._dasks: Any = getattr(self._owner, "__dict__", {}).get(name)
        self._before: Any = None
        self._ours: Any = None

    def exists(self) -> bool:
        """Whether this dask has it."""
        return self._dasks is not None

    def put_in(self) -> None:
        """Replace it; where ours is below another tool's already, it is heard again."""
        now = vars(self._owner).get(self._attribute)
        if self._ours is not None and now is not self._dasks:
            return
        self._before = now
        is_method = isinstance(now, classmethod)
        original = now.__func__ if is_method else now
        made = update_wrapper(self._make(original), original)
        self._ours = classmethod(made) if is_method else made
        setattr(self._owner, self._attribute, self._ours)

    def take_out(self) -> None:
        """Put back what was there, unless another tool has replaced it meanwhile."""
        if vars(self._owner).get(self._attribute) is self._ours:
            setattr(self._owner, self._attribute, self._before)
            self._before = self._ours = None


def _codes(*functions: object) -> frozenset[int]:
    """The ids of the code of functions, methods and properties; a dask may lack some."""
    plain = (getattr(one, "__func__", getattr(one, "fget", one)) for one in functions)
    return frozenset(id(one.__code__) for one in plain if hasattr(one, "__code__"))


_GRAPH = vars(HighLevelGraph)
_ADD_LAYERS = _codes(_GRAPH.get("from_collections"), _GRAPH.get("_from_collection"))
"""Functions that make a graph whose new layer has been noted before."""
_NAME_AGAIN = _codes(
    getattr(_found("dask.delayed:DelayedLeaf"), "dask", None),
    getattr(_found("dask.delayed:DelayedAttr"), "dask", None),
    getattr(_found("dask._expr:HLGExpr"), "from_collection", None),
)
"""Functions that make a layer for an object which may have been noted before."""
_DASK = os.path.dirname(dask.__file__)
_OPTIMIZERS = frozenset(
    os.path.join(_DASK, *file)
    for file in (
        ("highlevelgraph.py",),
        ("_expr.py",),
        ("blockwise.py",),
        ("base.py",),
        ("array", "optimization.py"),
    )
)
"""Files that copy layers: one whose name is not known was built before."""
_FINALIZE = "finalize-"
_MADE_UP = re.compile(r"(?:^|-)(?:transfer|barrier|zpartd|shuffle-partition)-")


def _note_layer(  # noqa: PLR0917 - those of dask follow ours
    capture: Capture,
    caller: FrameType,
    made: object,
    kind: type,
    name: Hashable,
    layer: object,
    *args: object,
    **kwargs: object,
) -> None:
    """Note a new layer, and other names that its keys have."""
    names = capture.names
    site = None
    # Dask's optimizers name a graph by its id, which no task has in its key.
    if type(name) is not int:
        site = capture.here(caller)
        if id(caller.f_code) not in _NAME_AGAIN:
            names.note(name, site)
        elif name in names:
            return
        else:
            names.note_new(name, site)
    if type(layer) is dict and name_of_key(next(iter(layer), None)) != name:
        _note_prefixes(names, layer, site)


def _note_prefixes(names: NamedSites, layer: object, site: Site | None) -> None:
    """Note the names in the keys of a layer that has its keys already."""
    if type(layer) is dict or type(layer) is MaterializedLayer:
        for name in set(map(name_of_key, layer)):
            # A name that dask makes up as it shuffles does not say when that was built: the tasks
            # that depend on it do.
            if name not in names and (site is not None or not _MADE_UP.search(str(name))):
                names.note_new(name, site)


def _note_layers(
    capture: Capture,
    caller: FrameType,
    made: object,
    graph: object,
    layers: Mapping[Hashable, object],
    *args: object,
    **kwargs: object,
) -> None:
    """Note the layers of a graph that are not known."""
    if id(caller.f_code) in _ADD_LAYERS:
        return
    names = capture.names
    is_copy = caller.f_code.co_filename in _OPTIMIZERS
    unknown = names.unknown(layers, is_copy)
    if not unknown:
        return
    site = None if is_copy else capture.here(caller)
    for name in unknown:
        built = capture.here(caller) if is_copy and str(name).startswith(_FINALIZE) else site
        names.note_new(name, built)
        _note_prefixes(names, layers[name], built)


def _note_delayed(
    capture: Capture, caller: FrameType, made: object, delayed: Any, *args: object, **kwargs: object
) -> None:
    capture.names.note(delayed._key, capture.here(caller))


def _note_clone(
    capture: Capture, caller: FrameType, made: Any, key: Any, *args: object, **kwargs: object
) -> None:
    names, name = capture.names, name_of_key(key)
    if name in names:
        names.note(name_of_key(made), names.get(name))


def _note_futures(  # noqa: PLR0917
    capture: Capture,
    caller: FrameType,
    made: object,
    client: object,
    graph: object = None,
    keys: Iterable[Hashable] = (),
    *args: object,
    **kwargs: object,
) -> None:
    """Note futures, and results of computations: their names are made by the call."""
    names = capture.names
    for name in set(map(name_of_key, keys)):
        if names.origin(name) is None:
            names.note(name, capture.here(caller))


_NOTES: list[tuple[str, str, Callable[..., None]]] = [
    ("dask.highlevelgraph:HighLevelGraph", "from_collections", _note_layer),
    ("dask.highlevelgraph:HighLevelGraph", "__init__", _note_layers),
    ("dask.delayed:DelayedAttr", "__init__", _note_delayed),
    ("dask.delayed:DelayedLeaf", "__init__", _note_delayed),
    ("dask.graph_manipulation", "clone_key", _note_clone),
    ("dask.blockwise", "clone_key", _note_clone),
    ("dask.highlevelgraph", "clone_key", _note_clone),
]
_REPLACED = [_Replaced(owner, name, noting(note)) for owner, name, note in _NOTES]
"""All functions of dask that are replaced while lines are captured, with those of `_of_classes`."""
_put_in: list[_Replaced] = []
_of_classes: dict[tuple[type, str], _Replaced] = {}


def _add(owner: type, name: str, make: Make) -> None:
    _of_classes.setdefault((owner, name), _Replaced(owner, name, make))


_STEPS = {
    "simplify_once": False,
    "rewrite": False,
    "lower_once": True,
    "_substitute": False,
    "substitute_parameters": False,
}
"""Recursive steps of the optimizer of expressions, and whether each lowers them."""


def _loaded() -> list[_Replaced]:
    """Methods of the classes of expressions, collections and clients that are loaded by now."""
    for module in MODULES:
        kind = getattr(sys.modules.get(module), "Expr", None)
        if kind is not None and "simplify_once" in vars(kind):
            for name, is_lowering in _STEPS.items():
                _add(kind, name, noting_step(is_lowering))
    kinds = DaskMethodsMixin.__subclasses__()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        # A collection that is made of an expression.
        code = getattr(vars(kind).get("__init__"), "__code__", None)
        if code is not None and "expr" in code.co_varnames[1:2]:
            _add(kind, "__init__", noting(note_collection))
    client = getattr(sys.modules.get("distributed.client"), "Client", None)
    if client is not None:
        _add(client, "_graph_to_futures", noting(_note_futures))
    return list(_of_classes.values())
