"""Lines of expressions: dask gives an expression another name in each step of its optimizer.

A user's line makes a collection, and the nodes of its tree that are new have that line. In a step
of the optimizer a new node has the line of the expression that is rewritten, or of the child that
takes its place. Inner steps return first, so each node has the line of the innermost.

A node is not noted where it is created: an expression lowers its children when it only asks for
their partitions, and keeps them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType
from typing import Any

from dask_diag.capture.failures import passes_errors_on, take_out_own_frames
from dask_diag.capture.lines.names import Capture, Now
from dask_diag.capture.lines.sites import Site

_OF_LAYERS = {"HLGExpr", "_HLGExprGroup", "_HLGExprSequence", "HLGFinalizeCompute"}
"""Classes that hold graphs, whose layers are noted as they are made: no step makes one."""
_WITHOUT_TASKS = {*_OF_LAYERS, "FinalizeCompute", "_ExprSequence"}
"""Classes that hold what is computed, new ones in each `compute`: no task has their names."""
_OF_EXPRESSIONS = (
    f"{os.sep}dask{os.sep}_expr",
    f"{os.sep}dask_expr{os.sep}",
    f"{os.sep}_array_expr{os.sep}",
)
MODULES = ("dask._expr", "dask.dataframe.dask_expr._core", "dask_expr._core")
"""Modules of the class `Expr`: today's, that before 2025.4, and that of dask-expr before 2025.1."""
_PLAIN = (str, int, float, bool, bytes, tuple, type(None))
_rewritten = threading.local()
"""The expressions that a thread rewrites, the innermost last."""


def _is_expression(value: object) -> bool:
    return hasattr(type(value), "simplify_once")


def noting(note: Callable[..., None]) -> Callable[..., Callable[..., object]]:
    """Replace a function by one that notes what was made, and from where it was called.

    Parameters
    ----------
    note : callable
        Called with the capture, the frame of the caller, what was made, and the arguments.
    """

    def make(original: Callable[..., object]) -> Callable[..., object]:
        def noting_function(*args: object, **kwargs: object) -> object:
            try:
                made = original(*args, **kwargs)
            except BaseException as error:
                take_out_own_frames(error)
                raise
            capture = Now.capture
            if capture is not None:
                try:
                    note(capture, sys._getframe(1), made, *args, **kwargs)
                except Exception as error:
                    capture.fault(error)
            return made

        passes_errors_on.add(id(noting_function.__code__))
        return noting_function

    return make


def note_collection(
    capture: Capture,
    caller: FrameType,
    made: object,
    collection: object,
    expr: Any,
    *args: object,
    **kwargs: object,
) -> None:
    """Note the expression of a new collection, and what is new below it."""
    names = capture.names
    if not _is_expression(expr) or expr._name in names:
        return
    site = _asked_at(capture, caller)
    # A line that makes again what was there before is its line.
    names.note(expr._name, site)
    for node in _new_nodes(capture, [*_children(expr)]):
        if node._name in names.existing:
            _note_old(capture, node)
        else:
            names.note(node._name, site)


def noting_step(is_lowering: bool) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Replace a recursive step of the optimizer."""

    def make(original: Callable[..., object]) -> Callable[..., object]:
        def step(self: Any, *args: object, **kwargs: object) -> object:
            capture = Now.capture
            if capture is not None and _has_layers(self):
                capture = None
            stack: list[Any] = []
            if capture is not None:
                stack = _rewritten.__dict__.setdefault("stack", [])
                _note_before(capture, self, stack, is_lowering)
                stack.append(self)
            try:
                made = original(self, *args, **kwargs)
            except BaseException as error:
                take_out_own_frames(error)
                raise
            finally:
                del stack[-1:]
            if capture is not None and made is not self:
                try:
                    _hand_on(capture, self, made, is_lowering)
                except Exception as error:
                    capture.fault(error)
            return made

        passes_errors_on.add(id(step.__code__))
        return step

    return make


def _note_before(capture: Capture, expression: Any, stack: list[Any], is_lowering: bool) -> None:
    """Note an expression that is about to be rewritten, if it is not known."""
    try:
        if _is_unknown(capture, expression):
            name = expression._name
            if name in capture.names.existing and _is_below(expression, stack):
                _note_old(capture, expression)
            else:
                capture.names.note(name, _inherited(capture, expression, stack, is_lowering))
    except Exception as error:
        capture.fault(error)


def _has_layers(expression: Any) -> bool:
    """Whether an expression holds nothing but graphs: no line of its steps is to be found."""
    kind = type(expression).__name__
    if kind in _OF_LAYERS:
        return True
    return kind in _WITHOUT_TASKS and all(map(_has_layers, expression.operands))


def _is_unknown(capture: Capture, expression: Any) -> bool:
    # The name of one without tasks may not be made yet, or is made each time.
    return type(expression).__name__ not in _WITHOUT_TASKS and expression._name not in capture.names


def _is_below(expression: Any, stack: list[Any]) -> bool:
    """Whether an expression is in the tree that is rewritten, and not made by a step before."""
    return not stack or any(child._name == expression._name for child in _children(stack[-1]))


def _note_old(capture: Capture, expression: Any) -> None:
    """Note what was there before, with all below it, which the optimizer may lift."""
    for node in _new_nodes(capture, [expression]):
        capture.names.note(node._name, None)


def _inherited(
    capture: Capture, expression: Any, stack: list[Any], is_lowering: bool
) -> Site | None:
    """The site of an expression that is not known as it is rewritten."""
    if not stack:
        return _asked_at(capture, sys._getframe(2))
    return _site_within(capture, expression, stack[-1], is_lowering)


def _site_within(capture: Capture, node: Any, before: Any, is_lowering: bool) -> Site | None:
    """The site of a new node in place of an expression: that of the latter, or of its child."""
    for child in _children(before):
        if child._name in capture.names and _takes_place(node, child, is_lowering):
            return capture.names.get(child._name)
    if type(before).__name__ in _WITHOUT_TASKS:
        return _asked_at(capture, sys._getframe(1))
    return capture.names.get(before._name)


def _asked_at(capture: Capture, frame: FrameType) -> Site:
    """The site of the expression that asks for others, or of the user's line."""
    return _owner(capture, frame) or capture.here(frame)


@lru_cache(4096)
def _is_of_expressions(file: str) -> bool:
    return any(part in file for part in _OF_EXPRESSIONS)


def _owner(capture: Capture, frame: FrameType | None) -> Site | None:
    """The site of the expression that computes or makes others, as to find its divisions."""
    while frame is not None and not capture.is_users(frame):
        code = frame.f_code
        if _is_of_expressions(code.co_filename) and code.co_varnames[:1] == ("self",):
            variables = frame.f_locals
            asking = variables.get("self")
            if type(variables) is dict:
                # What is a copy would keep what the function lets go.
                variables.clear()
            if asking is not None and _is_expression(asking):
                site = capture.names.get(asking._name)
                if site is not None:
                    return site
        frame = frame.f_back
    return None


def _hand_on(capture: Capture, before: Any, made: Any, is_lowering: bool) -> None:
    """Note the new nodes of a rewritten expression."""
    for node in _new_nodes(capture, [made] if _is_expression(made) else []):
        capture.names.note(node._name, _site_within(capture, node, before, is_lowering))


def _takes_place(node: Any, child: Any, is_lowering: bool) -> bool:
    """Whether a node is a child that has taken the place of the expression that was rewritten.

    Two steps of a reduction are lowered to nodes of one type: what they do must be the same.
    """
    if type(node) is not type(child):
        return False
    return not is_lowering or all(
        one is other or (type(one) is type(other) and isinstance(one, _PLAIN) and one == other)
        for one, other in zip(node.operands, child.operands, strict=False)
        if not _is_expression(one)
    )


def _children(expression: Any) -> Iterator[Any]:
    yield from expression.dependencies()
    # One that reads several partitions at once does not call it a dependency.
    inner = getattr(expression, "operands", ())
    if type(expression).__name__.startswith("FusedIO") and inner and _is_expression(inner[0]):
        yield inner[0]


def _new_nodes(capture: Capture, nodes: list[Any]) -> Iterator[Any]:
    """The nodes of trees whose tasks have names that are not known, down to those that are."""
    while nodes:
        node = nodes.pop()
        if type(node).__name__ in _WITHOUT_TASKS:
            nodes += _children(node)
        elif node._name not in capture.names:
            children = [*_children(node)]
            yield node
            nodes += children


def note_existing(capture: Capture) -> None:
    """Note the expressions that exist: they were built before."""
    for module in MODULES:
        root = getattr(sys.modules.get(module), "Expr", None)
        kinds = [root] if root is not None else []
        while kinds:
            kind = kinds.pop()
            kinds += kind.__subclasses__()
            capture.names.existing.update(list(vars(kind).get("_instances", ())))
