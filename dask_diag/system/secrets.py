"""Code, configuration and text without values that look like secrets."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from dask_diag.system.code import parsed

MASK = "…"
UNKNOWN = "\ufffc"
"""In a text, the place of a part that is only known when the program runs."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORDS = re.compile(
    r"passw|pass_word|passphrase|passcode|passkey|secret|token(?!i[sz])|credential|apikey"
    r"|kennwort|mot_de_passe|contrase|senha"
    r"|_(?:pwds?|pws?|psw|pswd|pin|creds?|o?auth[nz]?|authorization|authentication|authenticate"
    r"|bearer|cookies?|session_?id|jwt|otp|webhook|dsn|conn(?:ection)?_?str(?:ing)?"
    r"|(?:amz|access)_signature|sas_ur[il]|storage_options)_"
    r"|_(?:pass|sas)_$|^_(?:sig|private)_$"
    r"|(?:api|access|secret|private|account|auth|ssh|encryption|signing|master|shared)_?keys?_"
)
_KEY_WORDS = re.compile(r"_key_$|_\w+_keys_$")
_NAME = re.compile(r"[^\W\d][\w.-]*")
_SEPARATOR = re.compile(r"""(?:[\]"')]{0,3}[ \t]*(?::=|=>|->|={1,3}|:)\s*|>)(?=\S)""")
_SPOKEN = re.compile(r"passw|passphrase|passcode|secret|token|credential|pwd|^pw$", re.IGNORECASE)
_SEPARATOR_OF_SPOKEN = re.compile(r"""\s+is\s+(?=\S)|[ \t]+(?=\S*\d|["'])""")
_SEPARATOR_OF_WORDS = re.compile(r"\s+is\s+(?=\S*\d)")
_NEXT_NAME = re.compile(r"[\s,;&?]+[\w.-]+\s*[:=]")
_GOES_ON = re.compile(r"[|>][-+\d]*\s*|[^)\]}]*[(\[{][^)\]}]*")
"""A value that goes on in the lines below: a block of YAML, a bracket that is not closed."""
_OPTION_VALUE = re.compile(r"\s+(?=\S)")

_SHAPES = [
    re.compile(pattern)
    for pattern in (
        r"-----BEGIN[A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END[A-Z ]*-----|\Z)",
        # Before the host of an address; a password may have any character in it.
        r"(?<=://)[^\s/:@]*:[^\n]*(?=@)",
        r"(?<=://)[^\s/@]+(?=@)",
        r"(?<![\w/.+-])(?!mailto:)[\w.+-]+:[^\s/@]+(?=@[\w.-])",
        r"(?<=://hooks\.)\S+|\bwebhooks?/\S+",
        r"(?<=login )\s*\S+\s+password\s+\S+|\b(?i:identified by)\s+['\"]\S+",
        r"\b(?:mysql\w*\s[^\n]*?\s|sshpass\s)-p\s*\S+",
        r"(?<=-u )\s*[^\s:]+:\S+|(?<=--user[ =])\s*[^\s:]+:\S+",
        r"(?<=\b[Bb]earer\s)\s*\S+",
        r"(?<=\bBasic\s)\s*(?=\S*[A-Z0-9=])(?:[A-Za-z0-9+/]{4})+[A-Za-z0-9+/=]{4}(?![\w+/=])",
        r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}",
        r"\b(?:gh[pousr]_|github_pat_|hf_|npm_|[sr]k_live_|[sr]k_test_|dop_v1_|whsec_)\w{8,}",
        r"\b(?:glpat-|xox[a-z]-|AIza|ya29\.|pypi-|SG\.)[\w.-]{10,}",
        r"\bsk-(?:(?=[\w-]*\d)[\w-]{6,}|\w{16,})",
        r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?",
        r"(?<![\w+/])(?=[^\s]{0,39}[a-z])(?=[^\s]{0,39}[A-Z])(?=[^\s]{0,39}\d)"
        r"[A-Za-z0-9+/]{40}(?![\w+/=])",
        r"(?<![\w+/])[A-Za-z0-9+/]{16,}={1,2}(?![\w=])",
    )
]
_ENOUGH = 500
"""Of so many characters it is clear whether they are random."""
_LONG = re.compile(r"[A-Za-z0-9_-]{20,}")
_HEXADECIMAL = re.compile(r"(?=.*\d)(?=.*[a-f])(?:-?[0-9a-f]){32,}", re.IGNORECASE)


@lru_cache(maxsize=4096)
def is_secret_name(name: str, key_too: bool = True) -> bool:
    """Whether what has this name may be a secret, as ``db_password`` and ``apiKey``.

    A ``key`` or ``sort_key`` may be many other things: without `key_too` it does not count.
    """
    words = f"_{'_'.join(_WORDS.findall(name)).lower()}_"
    return bool(_SECRET_WORDS.search(words) or (key_too and _KEY_WORDS.search(words)))


def looks_secret(text: str) -> bool:
    """Whether there is a secret in a text."""
    return next(_spans(text), None) is not None


def redacted_text(text: str) -> str:
    """The text with its secrets masked; behind a name that says so, all of the line is.

    Where a value begins or goes on below, all that follows is. Lines keep their numbers.
    """
    parts: list[str] = []
    end = 0
    for start, stop in sorted(_spans(text)):
        if stop <= end:
            continue
        if start > end or not parts:
            parts += [text[end:start], MASK]
        parts.append("\n" * text.count("\n", max(start, end), stop))
        end = stop
    return "".join([*parts, text[end:]])


def redacted_repr(value: object) -> str:
    """The `repr` of a value, as configurations have them, with its secrets masked."""
    if isinstance(value, str):
        return repr(redacted_text(value))
    if isinstance(value, Mapping):
        items = (
            f"{key!r}: {MASK!r}"
            if is_secret_name(str(key))
            else f"{redacted_repr(key)}: {redacted_repr(item)}"
            for key, item in value.items()
        )
        return f"{{{', '.join(items)}}}"
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        text = ", ".join(map(redacted_repr, value))
        if type(value) is list:
            return f"[{text}]"
        return f"({text},)" if len(value) == 1 else f"({text})"
    return redacted_text(repr(value))


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the secrets of a text are, in no order."""
    for shape in _SHAPES:
        for match in shape.finditer(text):
            if _has_content(match[0]):
                yield match.span()
    for match in _LONG.finditer(text):
        if _is_random(match[0]):
            yield match.span()
    for match in _NAME.finditer(text):
        if is_secret_name(match[0]):
            start = _start_of_value(text, match)
            stop = text.find("\n", start)
            stop = len(text) if stop < 0 else stop
            value = _NEXT_NAME.split(text[start:stop], maxsplit=1)[0]
            if start > 0 and _has_content(value):
                goes_on = "\n" in text[match.end() : start] or _GOES_ON.fullmatch(value)
                surely = is_secret_name(match[0], key_too=False)
                yield start, len(text) if goes_on and surely else stop


def _start_of_value(text: str, name: re.Match[str]) -> int:
    """Where the value of a name begins, or 0 if none follows it."""
    spoken = _SPOKEN.search(name[0])
    separators = [_SEPARATOR, _SEPARATOR_OF_SPOKEN if spoken else _SEPARATOR_OF_WORDS]
    if text.startswith("--", max(name.start() - 2, 0)):
        separators.append(_OPTION_VALUE)
    for separator in separators:
        match = separator.match(text, name.end())
        if match:
            is_heading = "\n" in match[0] and not is_secret_name(name[0], key_too=False)
            return 0 if is_heading else match.end()
    return 0


def _has_content(text: str) -> bool:
    """Whether anything is left without what is masked, or only known when the program runs."""
    return bool(text.strip(f"{MASK}{UNKNOWN}:;,.'\")]}} \t"))


def _is_random(text: str) -> bool:
    """Whether a long text looks made by chance: hexadecimal, or with many changes of its kind.

    Of random letters and digits about three in five differ in kind (upper case, lower case, digit)
    from the one before; of words with numbers far fewer.
    """
    if _HEXADECIMAL.fullmatch(text):
        return True
    text = text[:_ENOUGH]
    kinds = ["".join(map(_kind, part)) for part in re.split("[_-]", text)]
    for part in kinds:
        if len(part) >= 20 and "0" in part and _changes(part) >= len(part) / 4:
            return True
    all_kinds = {"a", "A", "0"} <= set("".join(kinds))
    return all_kinds and sum(map(_changes, kinds)) >= 0.4 * len(text)


def _kind(character: str) -> str:
    return "0" if character.isdigit() else "a" if character.islower() else "A"


def _changes(kinds: str) -> int:
    return sum(before != after for before, after in pairwise(kinds))


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


_LIKE_A_NAME = re.compile(r"[-$]{0,2}[^\W\d][\w.-]{0,80}[:=]?")
LOOKUPS = frozenset({"get", "getenv", "pop", "getattr"})
"""Functions that look a name up, whose name is not secret itself."""
Formatted = tuple(getattr(ast, name) for name in ("JoinedStr", "TemplateStr") if hasattr(ast, name))
"""The formatted strings of this version of Python."""
_FIELDS = tuple(
    getattr(ast, name) for name in ("FormattedValue", "Interpolation") if hasattr(ast, name)
)
"""What they have between braces."""
_MAKE_ANOTHER_VALUE = (ast.UnaryOp, ast.Compare, ast.Lambda, ast.Slice, ast.Yield, ast.YieldFrom)
"""Expressions whose value is none of their parts'; what later Pythons add may pass it on."""


def values_in(node: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """The parts of an expression that make its value, and whether a name among them is a value."""
    if isinstance(node, ast.Dict):
        yield from ((value, True) for value in node.values)
    elif isinstance(node, (ast.Subscript, ast.Attribute)):
        yield node.value, False
    elif isinstance(node, ast.Call):
        yield node.func, False
        looks_up = name_of(node.func) in LOOKUPS
        makes_dict = name_of(node.func) == "dict"
        yield from ((argument, makes_dict) for argument in node.args[looks_up:])
        yield from ((keyword.value, makes_dict) for keyword in node.keywords)
    elif hasattr(node, "keys") and hasattr(node, "patterns"):
        yield from ((pattern, False) for pattern in node.patterns)
    elif isinstance(node, ast.BinOp):
        yield from ((operand, True) for operand in operands(node))
    elif isinstance(node, ast.comprehension):
        yield from ((child, child is node.iter) for child in ast.iter_child_nodes(node))
    else:
        passes_on = isinstance(node, ast.expr) and not isinstance(node, _MAKE_ANOTHER_VALUE)
        yield from ((child, passes_on) for child in ast.iter_child_nodes(node))


def operands(node: ast.BinOp) -> list[ast.expr]:
    """The operands of a chain of operations, without recursion: there may be thousands."""
    right = []
    operation: ast.expr = node
    while isinstance(operation, ast.BinOp):
        right.append(operation.right)
        operation = operation.left
    return [operation, *reversed(right)]


def pairs_of(targets: Sequence[ast.expr], value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Targets and their values, if it is clear which is whose."""
    if not isinstance(value, (ast.Tuple, ast.List)) or len(value.elts) != len(targets):
        return []
    if any(isinstance(element, ast.Starred) for element in (*targets, *value.elts)):
        return []
    return list(zip(targets, value.elts, strict=True))


def is_secret(node: ast.expr, *, texts: bool = False, key_too: bool = True) -> bool:
    """Whether an expression has a secret name, or with `texts` is one.

    For `key_too` see `is_secret_name`.
    """
    if isinstance(node, ast.Name):
        return is_secret_name(node.id, key_too)
    if isinstance(node, ast.Attribute):
        return is_secret_name(node.attr, key_too) or is_secret(node.value, key_too=False)
    if isinstance(node, ast.Subscript):
        return (
            is_named_text(node.slice, key_too)
            or is_secret(node.slice, key_too=False)
            or is_secret(node.value, key_too=False)
        )
    if isinstance(node, ast.Call):
        looked_up = node.args[:1] if name_of(node.func) in LOOKUPS else []
        of_name = any(is_named_text(argument, key_too) for argument in looked_up)
        return of_name or is_secret(node.func, key_too=False)
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(is_secret(element, texts=texts, key_too=key_too) for element in node.elts)
    if isinstance(node, ast.Starred):
        return is_secret(node.value, key_too=key_too)
    return texts and is_named_text(node, key_too)


def is_named_text(node: ast.expr, key_too: bool = True) -> bool:
    """Whether it is a text that is a secret name, as ``"--password"``, or texts with one."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(is_named_text(element, key_too=False) for element in node.elts)
    text = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(text, str) or not _LIKE_A_NAME.fullmatch(text):
        return False
    return is_secret_name(text, key_too)


def is_named_constant(node: ast.expr) -> bool:
    """Whether it is a constant that names a secret, as ``API_KEY``."""
    name = name_of(node)
    return name.isupper() and is_secret_name(name)


def name_of(node: ast.expr) -> str:
    """The last part of a name, or empty."""
    return getattr(node, "id", "") or getattr(node, "attr", "")


def base_name(node: ast.expr) -> str:
    """The name of which an item, or an item of an item, is meant; or empty."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def text_of(node: ast.AST) -> str | None:
    """The text of an expression or None if it is none."""
    if isinstance(node, ast.Constant):
        value = node.value
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        return text if isinstance(text, str) else None
    if isinstance(node, Formatted):
        return "".join(text_of(value) or UNKNOWN for value in node.values)
    if isinstance(node, _FIELDS):
        return text_of(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        texts = [text_of(operand) for operand in operands(node)]
        has_text = any(text is not None for text in texts)
        return "".join(text or UNKNOWN for text in texts) if has_text else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        separator = text_of(node.func.value) if node.func.attr == "join" else None
        parts = getattr(node.args[0], "elts", None) if len(node.args) == 1 else None
        if separator is not None and parts is not None:
            return separator.join(text_of(part) or UNKNOWN for part in parts)
    return None


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


Position = tuple[int, int]
"""A line, from 1 on, and a column, in characters from 0 on."""

_PREFIXES = "rbuftRBUFT"
"""What may stand before the quotes of a literal."""
_MAGIC = re.compile(r"(\s*)(?:[%!].*|[\w.]+\?{1,2}\s*|\?.*|[\w., ]+=\s*[%!].*)")
_TOKENS_OF_LOOSE_CODE = re.compile(
    r"""(?P<comment>\#[^\n]*)
    | [rbuftRBUFT]{0,3} (?: \"{3}.*?(?:\"{3}|\Z) | '{3}.*?(?:'{3}|\Z)
        | "(?:\\.|[^"\\\n])*(?:"|$) | '(?:\\.|[^'\\\n])*(?:'|$) )""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_BEGINS = re.compile(r"([^\W\d][\w.-]*)[\"')\]]{0,2}\s*[:=]\s*(?:[\"']*|[^)\]}]*[(\[{][^)\]}]*)$")


class _Piece(NamedTuple):
    """A piece of the source: a literal or a comment."""

    start: Position
    stop: Position
    text: str


@lru_cache(maxsize=8)
def redacted_source(text: str) -> str:
    """The code without string literals and comments that look like secrets.

    Parameters
    ----------
    text : str
        Python code, whole or in part.

    Returns
    -------
    str
        The same lines; what is masked reads ``'…'``.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    masked = _masked_as_code(text, text)
    if masked is None and not text.lstrip().startswith("%%"):
        masked = _masked_with_magics(text)
    return _masked_as_text(text) if masked is None else masked


def _masked_with_magics(text: str) -> str | None:
    """The code of a notebook, whose lines with magics are masked as text; None if it has none."""
    lines = text.split("\n")
    magics = {number for number, line in enumerate(lines) if _MAGIC.fullmatch(line)}
    plain = [
        _MAGIC.sub(r"\1pass", line) if number in magics else line
        for number, line in enumerate(lines)
    ]
    masked = _masked_as_code("\n".join(plain), text) if magics else None
    if masked is None:
        return None
    return "\n".join(
        _masked_as_text(line) if number in magics else line
        for number, line in enumerate(masked.split("\n"))
    )


def _masked_as_code(code: str, text: str) -> str | None:
    """`text` masked where `code`, which has the same lines, has secrets; None if it is no code.

    Nor is what cannot be understood, as syntax of a later Python.
    """
    tree = parsed(code)
    if tree is None:
        return None
    try:
        nodes = secret_literals(tree)
        literals, comments = _pieces(code)
    except Exception:
        return None
    lines = code.split("\n")
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    masked: dict[_Piece, str] = {}
    for node in nodes:
        pieces = _within(literals, *_span(node, lines))
        if not pieces:
            return None
        mask = _masked_prose if id(node) in prose and len(pieces) == 1 else _masked_literal
        masked |= {piece: mask(piece.text) for piece in pieces}
    named = {piece.start[0] for piece in comments if _names_a_secret(piece.text)}
    masked |= {piece: _masked_literal(piece.text) for piece in literals if piece.stop[0] in named}
    masked |= zip(comments, _masked_comments(comments, lines), strict=True)
    return _replaced(text, masked)


def _pieces(code: str) -> tuple[list[_Piece], list[_Piece]]:
    """The literals and the comments of code, in order; a formatted string is one literal."""
    lines = code.split("\n")
    literals, comments = [], []
    opened: list[Position] = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):
            opened.append(token.start)
        elif kind.endswith("STRING_END"):
            start = opened.pop()
            if not opened:
                literals.append(_Piece(start, token.end, _text_of(lines, start, token.end)))
        elif kind == "STRING" and not opened:
            literals.append(_Piece(token.start, token.end, token.string))
        elif kind == "COMMENT" and not opened:
            comments.append(_Piece(token.start, token.end, token.string))
    return literals, comments


def _text_of(lines: list[str], start: Position, stop: Position) -> str:
    text = "\n".join(lines[start[0] - 1 : stop[0]])
    return text[start[1] : len(text) - len(lines[stop[0] - 1]) + stop[1]]


def _span(node: ast.expr, lines: list[str]) -> tuple[Position, Position]:
    """Where a node is; the parser counts columns in bytes."""

    def position(line: int, column: int) -> Position:
        return line, len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)


def _within(pieces: list[_Piece], start: Position, stop: Position) -> list[_Piece]:
    """The pieces, which are in order, that are between two positions, or the one around these."""
    first, last = (bisect_left(pieces, position, key=itemgetter(0)) for position in (start, stop))
    if first == last and first and pieces[first - 1].stop >= stop:
        return [pieces[first - 1]]
    return pieces[first:last]


def _masked_literal(text: str) -> str:
    """The mask of a literal: of as many lines, and of none if it is empty."""
    body = text.lstrip(_PREFIXES)
    if not body.strip(body[0]):
        return text
    breaks = text.count("\n")
    return f"'''{MASK}" + "\n" * breaks + "'''" if breaks else f"'{MASK}'"


def _masked_prose(text: str) -> str:
    """The mask of a literal that is a statement, as a docstring: it stays readable."""
    body = text.lstrip(_PREFIXES)
    quotes = body[:3] if body[:3] in ('"""', "'''") else body[:1]
    inner = body[len(quotes) : -len(quotes)]
    masked = redacted_text(inner)
    if masked == inner:
        # It looks secret only when its escapes are read.
        return _masked_literal(text)
    return text[: len(text) - len(body)] + quotes + masked + quotes


def _names_a_secret(comment: str) -> bool:
    """Whether a comment says that a secret is beside it, and has none itself."""
    return redacted_text(comment) == comment and any(
        is_secret_name(word, key_too=False) for word in re.findall(r"[\w-]+", comment)
    )


def _masked_comments(comments: list[_Piece], lines: list[str]) -> Iterator[str]:
    """The comments, masked; and the lines of a comment below one in which a secret begins."""
    last_line, hides = 0, False
    for piece in comments:
        line, column = piece.start
        alone = not lines[line - 1][:column].strip()
        if hides and alone and line == last_line + 1:
            masked = f"# {MASK}"
        else:
            masked = redacted_text(piece.text)
            begins = _BEGINS.search(piece.text)
            named = begins is not None and is_secret_name(begins[1], key_too=False)
            hides = alone and (named or piece.text.endswith("PRIVATE KEY-----"))
        last_line = line
        yield masked


def _replaced(text: str, masked: Mapping[_Piece, str]) -> str:
    """The text with other text in place of some of its pieces."""
    lines = text.split("\n")
    for piece, replacement in sorted(masked.items(), reverse=True):
        (first, start), (last, stop) = piece.start, piece.stop
        before, behind = lines[first - 1][:start], lines[last - 1][stop:]
        lines[first - 1 : last] = f"{before}{replacement}{behind}".split("\n")
    return "\n".join(lines)


def _masked_as_text(text: str) -> str:
    """Code of which it is not known what it means: every literal is masked, and what looks so."""
    comments: list[_Piece] = []
    masked: dict[_Piece, str] = {}
    begins = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(offset: int) -> Position:
        line = bisect_right(begins, offset)
        return line, offset - begins[line - 1]

    for match in _TOKENS_OF_LOOSE_CODE.finditer(text):
        piece = _Piece(position(match.start()), position(match.end()), match[0])
        if match["comment"]:
            comments.append(piece)
        else:
            masked[piece] = _masked_literal(piece.text)
    masked |= zip(comments, _masked_comments(comments, text.split("\n")), strict=True)
    return redacted_text(_replaced(text, masked))
