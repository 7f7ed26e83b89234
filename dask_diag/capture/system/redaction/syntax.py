"""Which string literals of a program may be secret, by the names that they are given.

A literal counts as secret if its own text looks so (see `looks_secret`), or if it is what a secret
name is given: in an assignment, an argument, a default, a dict, a comparison, what a function
returns, or the element behind such a name. Names that are themselves passed for a secret
(``connect(password=value)``) count as secret where they are assigned.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dask_diag.capture.system.redaction.expressions import (
    LOOKUPS,
    Formatted,
    base_name,
    is_named_constant,
    is_named_text,
    is_secret,
    operands,
    pairs_of,
    text_of,
    values_in,
)
from dask_diag.capture.system.redaction.names import NamesOfSecrets
from dask_diag.capture.system.redaction.text import is_secret_name, looks_secret

__all__ = ["secret_literals"]

_SIGNS_IN = re.compile(
    r"(?:^|_)(?:(?:log|sign)_?in|b64decode|unhexlify|fromhex)(?:_|$)", re.IGNORECASE
)
_CHANGES = frozenset({"add", "append", "extend", "insert", "setdefault", "update"})
_VALUES_OF_OPTIONS = frozenset({"const", "default", "initial", "value"})
_LABELS_OF_NAMES = ("name", "key", "field", "header", "option", "variable", "parameter", "dest")
_MOST_ROUNDS = 20


def secret_literals(tree: ast.AST) -> list[ast.expr]:
    """The string literals of a program that may be secret; a formatted string is one literal.

    Raises
    ------
    RecursionError
        If the program is nested too deeply.
    """
    names = NamesOfSecrets()
    for _ in range(_MOST_ROUNDS):
        finder, count = _Finder(names), len(names)
        finder.visit(tree)
        if len(names) == count:
            break
    return finder.literals


class _Finder(ast.NodeVisitor):
    """Collects literals in `literals`, and in `names` those whose values are secret."""

    def __init__(self, names: NamesOfSecrets) -> None:
        self.literals: list[ast.expr] = []
        self.names = names

    # Names that are given a value.

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For | ast.AsyncFor | ast.comprehension) -> None:
        if is_secret(node.target, key_too=False):
            self._hide(node.iter)
        self.generic_visit(node)

    visit_AsyncFor = visit_For  # noqa: N815
    visit_comprehension = visit_For

    def visit_arguments(self, node: ast.arguments) -> None:
        positional = [*node.posonlyargs, *node.args]
        defaults: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(positional[len(positional) - len(node.defaults) :], node.defaults, strict=True),
            *zip(node.kwonlyargs, node.kw_defaults, strict=True),
        ]
        for argument, default in defaults:
            named = is_secret_name(argument.arg) or argument.arg in self.names
            if default is not None and named:
                self._hide(default)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        name = node.arg or ""
        is_key = is_secret_name(name) and not is_secret_name(name, key_too=False)
        sorts = is_key and isinstance(node.value, ast.Lambda)
        if is_secret_name(name) and not sorts:
            self._hide(node.value, aliases=not is_key)
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None and is_secret(key, texts=True):
                self._hide(value)
        labels = [getattr(key, "value", None) for key in node.keys]
        self._beside_its_name(labels, node.values)
        self.generic_visit(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        # ``{**part for part in parts}`` has no value: then its key is what is unpacked.
        if node.value is not None and is_secret(node.key, texts=True, key_too=False):
            self._hide(node.value)
        self.generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, (ast.Tuple, ast.List)):
            alias = base_name(target) in self.names
            if alias or is_secret(target):
                self._hide(value, aliases=alias or is_secret(target, key_too=False))
            return
        pairs = pairs_of(target.elts, value)
        for part, value_of_part in pairs:
            self._assign(part, value_of_part)
        if not pairs and is_secret(target):
            self._hide(value)

    # Values that stand beside a secret name.

    def visit_Compare(self, node: ast.Compare) -> None:
        self._beside([node.left, *node.comparators])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        if isinstance(node.op, ast.Or):
            self._beside(node.values, any_value=False)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._beside([node.body, node.orelse], any_value=False)
        self.generic_visit(node)

    def visit_Tuple(self, node: ast.Tuple | ast.List | ast.Set) -> None:
        is_pair = isinstance(node, ast.Tuple) and len(node.elts) == 2
        for name, value in pairwise(node.elts):
            if is_named_text(name, key_too=is_pair):
                self._hide(value)
        self.generic_visit(node)

    visit_List = visit_Tuple  # noqa: N815
    visit_Set = visit_Tuple  # noqa: N815

    def visit_Match(self, node: ast.Match) -> None:
        if is_secret(node.subject):
            for case in node.cases:
                self._hide(case.pattern, aliases=False)
        self.generic_visit(node)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        for key, pattern in zip(node.keys, node.patterns, strict=True):
            if is_secret(key, texts=True):
                self._hide(pattern, aliases=False)
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        for name, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
            if is_secret_name(name):
                self._hide(pattern, aliases=False)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._is_of_a_secret(node.func) or looks_secret(text_of(node) or ""):
            self._hide(node, aliases=False)
        self._beside(node.args, any_value=False, key_too=False)
        behind = by_text = False
        for argument in node.args:
            if behind:
                self._hide(argument)
            elif is_named_text(argument) or is_named_constant(argument):
                behind, by_text = True, isinstance(argument, ast.Constant)
        for keyword in node.keywords if by_text else ():
            if keyword.arg in _VALUES_OF_OPTIONS:
                self._hide(keyword.value)
        labels = [keyword.arg for keyword in node.keywords]
        self._beside_its_name(labels, [keyword.value for keyword in node.keywords])
        self.generic_visit(node)

    def _beside_its_name(self, labels: Sequence[object], values: Sequence[ast.expr]) -> None:
        """Hide the value that is given beside its name: ``{"name": "token", "value": "…"}``."""
        for label, name in zip(labels, values, strict=True):
            if label in _LABELS_OF_NAMES and is_named_text(name):
                for value in values:
                    if value is not name:
                        self._hide(value, aliases=False)

    def _is_of_a_secret(self, func: ast.expr) -> bool:
        """Whether what is called has a secret name or handles secrets, or is a method of such."""
        if isinstance(func, ast.Name):
            return is_secret(func, key_too=False) or bool(_SIGNS_IN.search(func.id))
        if not isinstance(func, ast.Attribute):
            return False
        if func.attr in _CHANGES and base_name(func.value) in self.names:
            return True
        if func.attr == "format" and looks_secret(text_of(func.value) or ""):
            return True
        if func.attr in LOOKUPS:
            return False
        return is_secret(func, key_too=False) or bool(_SIGNS_IN.search(func.attr))

    def _beside(
        self, values: Sequence[ast.expr], any_value: bool = True, key_too: bool = True
    ) -> None:
        """Hide what stands beside a secret; without `any_value` only values that are text."""
        if not any(
            is_secret(value, key_too=key_too) or looks_secret(text_of(value) or "")
            for value in values
        ):
            return
        for value in values:
            if any_value or isinstance(value, (ast.Constant, ast.BinOp, *Formatted)):
                self._hide(value, aliases=False)

    # Functions and classes of a secret name.

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if is_secret_name(node.name, key_too=False):
            for inner in ast.walk(node):
                if isinstance(inner, (ast.Return, ast.Yield)) and inner.value is not None:
                    self._hide(inner.value, aliases=False)
        with self.names.of_function(node):
            self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if is_secret_name(node.name, key_too=False):
            for statement in node.body:
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value:
                    self._hide(statement.value)
        self.generic_visit(node)

    # Texts that look secret themselves.

    def visit_Constant(self, node: ast.Constant) -> None:
        text = text_of(node)
        if text is not None and looks_secret(text):
            self.literals.append(node)

    def visit_JoinedStr(self, node: Any) -> None:
        # Where a literal within it is, older versions of Python do not know.
        before = len(self.literals)
        self.generic_visit(node)
        if len(self.literals) > before or looks_secret(text_of(node) or ""):
            self.literals[before:] = [node]

    visit_TemplateStr = visit_JoinedStr  # noqa: N815

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = text_of(node)
        if text is not None and looks_secret(text):
            self._hide(node, aliases=False)
        for operand in operands(node):
            self.visit(operand)

    def _hide(self, node: ast.AST, aliases: bool = True) -> None:
        """Collect the texts of an expression; names of values, too, if they are its `aliases`."""
        if isinstance(node, ast.Constant):
            if text_of(node):
                self.literals.append(node)
            return
        if isinstance(node, ast.Name):
            if aliases:
                self.names.add(node.id)
            return
        before = len(self.literals)
        for child, may_be_alias in values_in(node):
            self._hide(child, aliases and may_be_alias)
        if isinstance(node, Formatted) and len(self.literals) > before:
            self.literals[before:] = [node]
