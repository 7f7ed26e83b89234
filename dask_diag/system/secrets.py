"""Mask secrets in code, configuration and text.

A value is masked where its name says that it is secret. In code that is a string literal that is
assigned, passed, compared, returned or stored under such a name, or that follows the name as a
text; in text, ``name=value``, ``name: value`` and ``--name value``. User and password of an
address, credentials in headers, and text with the shape of a token are masked under any name.

Not masked are numbers; words under harmless names; an address that several literals make together;
a literal in a ``match`` statement, in a dict comprehension, in the body of a class with a secret
name, or in a pair such as ``{"name": "PASSWORD", "value": "…"}``; a literal that reaches a secret
name through a method, a loop over rows or ``zip``; an argument beside a secret, as of
``compare_digest(token, "…")``, or beside the shape of a token; a literal beside, or a comment
below, a comment that names a secret; and, in text, ``mysql -p…``, ``password …`` without a sign.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, pairwise, permutations

from dask_diag.system.code import parsed

MASK = "…"
_UNKNOWN = "\ufffc"
"""In a formatted string, the place of a value that is known when the program runs."""

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

_SHAPES = [
    re.compile(pattern)
    for pattern in (
        r"-----BEGIN[A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END[A-Z ]*-----|\Z)",
        # Before the host of an address; a password may have any character in it.
        r"(?<=://)[^\s/:@]*:[^\n]*(?=@)",
        r"(?<=://)[^\s/@]+(?=@)",
        r"(?<![\w/.+-])(?!mailto:)[\w.+-]+:[^\s/@]+(?=@[\w.-])",
        r"(?<=://hooks\.)\S+|\bwebhooks?/\S+",
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
_LONG = re.compile(r"[A-Za-z0-9_-]{20,}")
_HEXADECIMAL = re.compile(r"(?=.*\d)(?=.*[a-f])(?:-?[0-9a-f]){32,}", re.IGNORECASE)
_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z\d])|(?<=[A-Z])(?=[a-z\d])|(?<=\d)(?=[A-Za-z])")
"""A place where the kind of character changes: upper case, lower case, digit."""
_NAME = re.compile(
    r"""(--)?([^\W\d][\w.-]*)
    (?:[\]"')]{0,3}[ \t]*(?::=|=>|->|={1,3}|:)[ \t]*|>|[ \t]+is[ \t]+(?=\S*\d)
    |(?(1)[ \t]+(?=\S)|(?!)))""",
    re.VERBOSE,
)
"""A name with what separates it from its value."""
_OPENING = re.compile(r"[|>][-+\d]*\s*|[^)\]}]*[(\[{][^)\]}]*|\s*")
"""A value that goes on in the lines below: a block of YAML, a bracket that is not closed."""


@lru_cache(maxsize=4096)
def is_secret_name(name: str, key_too: bool = True) -> bool:
    """Whether a name is of a secret, as ``db_password`` and ``apiKey``.

    A ``key`` or ``sort_key`` may be many other things: without `key_too` neither counts.
    """
    words = f"_{'_'.join(_WORDS.findall(name)).lower()}_"
    return bool(_SECRET_WORDS.search(words) or (key_too and _KEY_WORDS.search(words)))


def redacted_text(text: str) -> str:
    """Mask secrets in a text; behind a secret name, the rest of the line is masked.

    If a value begins or goes on in the lines below, they are all masked. Lines keep their numbers.
    """
    for shape in _SHAPES:
        text = shape.sub(_masked_shape, text)
    text = _LONG.sub(lambda match: MASK if _is_random(match[0]) else match[0], text)
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for name in _NAME.finditer(line):
            if not is_secret_name(name[2]):
                continue
            value, below = line[name.end() :], lines[number + 1 :]
            if (
                _OPENING.fullmatch(value)
                and is_secret_name(name[2], key_too=False)
                and _has_content("".join(below))
            ):
                masked = f"{line[: name.end()]}{MASK}"
                return "\n".join([*lines[:number], masked, *[""] * len(below)])
            if _has_content(re.split(r"[\s,;&?]+[\w.-]+\s*[:=]", value, maxsplit=1)[0]):
                lines[number] = f"{line[: name.end()]}{MASK}"
                break
    return "\n".join(lines)


def redacted_repr(value: object) -> str:
    """`repr` of a configured value with secrets masked."""
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
    if type(value) is list:
        return f"[{', '.join(map(redacted_repr, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(redacted_repr, value))}{',' if len(value) == 1 else ''})"
    return redacted_text(repr(value))


def _masked_shape(match: re.Match[str]) -> str:
    return MASK + "\n" * match[0].count("\n") if _has_content(match[0]) else match[0]


def _has_content(text: str) -> bool:
    """Whether a value has more than masks and places of unknown values."""
    return bool(text.strip(f"{MASK}{_UNKNOWN}:;,.'\")]}} \t\n"))


def _is_random(text: str) -> bool:
    """Whether a long text looks made by chance: hexadecimal, or with many changes of its kind.

    Of random letters and digits about three in five differ in kind from the one before; of words
    with numbers far fewer.
    """
    changes = len(_CHANGE.findall(text)) / len(text)
    enough = 0.25 if text.isalnum() else 0.4
    return bool(_HEXADECIMAL.fullmatch(text)) or (
        changes >= enough and bool(re.search(r"\d", text))
    )


_FORMATTED = tuple(
    getattr(ast, name) for name in ("JoinedStr", "TemplateStr") if hasattr(ast, name)
)
_LITERALS = (ast.Constant, *_FORMATTED)
_LIKE_A_NAME = re.compile(r"[-$]{0,2}[^\W\d][\w.-]{0,80}[:=]?")
_LOOKUPS = frozenset({"get", "getenv", "pop", "getattr"})
"""Functions whose first argument, or the one after an object, is a name and no secret."""
_SIGNS_IN = re.compile(r"(?:^|_)(?:(?:log|sign)_?in|b64decode|unhexlify|fromhex)(?:_|$)", re.I)


def _text_of(node: ast.AST) -> str:
    """Text of a literal; empty for any other expression."""
    if isinstance(node, _FORMATTED):
        return "".join(_text_of(part) or _UNKNOWN for part in node.values)
    value = node.value if isinstance(node, ast.Constant) else None
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return text if isinstance(text, str) else ""


def _looks_secret(literal: ast.AST) -> bool:
    text = _text_of(literal)
    return redacted_text(text) != text


Named = tuple[ast.AST | str | None, ast.expr | None, bool]
"""A name, a value that belongs to the name, and whether a ``key`` counts as a secret name."""


def _named_values(node: ast.AST) -> Iterator[Named]:  # noqa: C901, PLR0912
    """Yield pairs of a name and a value in one node of a syntax tree."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _assigned(target, value)
        case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr():
            yield node.target, node.value, True
        case ast.For() | ast.comprehension():
            yield node.target, node.iter, False
        case ast.arguments():
            positional = [*node.posonlyargs, *node.args]
            arguments = [*positional[len(positional) - len(node.defaults) :], *node.kwonlyargs]
            for argument, default in zip(
                arguments, [*node.defaults, *node.kw_defaults], strict=True
            ):
                yield argument.arg, default, True
        case ast.keyword(arg=str(name), value=value) if not isinstance(value, ast.Lambda):
            yield name, value, True
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                yield key, value, True
        case ast.Compare():
            yield from _beside([node.left, *node.comparators])
        case ast.BoolOp(op=ast.Or()):
            yield from _beside(node.values)
        case ast.IfExp():
            yield from _beside([node.body, node.orelse])
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            is_pair = isinstance(node, ast.Tuple) and len(parts) == 2
            for part, following in pairwise(parts):
                if isinstance(part, ast.Constant):
                    yield part, following, is_pair
        case ast.Call():
            yield from _passed(node)
        case ast.FunctionDef() if is_secret_name(node.name, key_too=False):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return):
                    yield node.name, inner.value, False


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[Named]:
    targets, values = (getattr(node, "elts", []) for node in (target, value))
    if len(targets) == len(values) > 0:
        for part, value_of_part in zip(targets, values, strict=True):
            yield from _assigned(part, value_of_part)
    else:
        yield target, value, True


def _beside(operands: list[ast.expr]) -> Iterator[Named]:
    """Yield operands compared with a secret, or in place of a secret."""
    for name, value in permutations(operands, 2):
        if not isinstance(name, ast.Constant):
            yield name, value, True


def _passed(call: ast.Call) -> Iterator[Named]:
    """Yield arguments of a function with a name, and arguments after a name."""
    if _name_of(call.func) not in _LOOKUPS:
        for value in (*call.args, *(keyword.value for keyword in call.keywords)):
            yield call.func, value, False
    for number, name in enumerate(call.args):
        if (isinstance(name, ast.Constant) or _name_of(name).isupper()) and _is_secret(name):
            for value in call.args[number + 1 :]:
                yield name, value, True


def _is_secret(name: ast.AST | str | None, key_too: bool = True) -> bool:
    """Whether a name is a secret's; an expression may have several names."""
    match name:
        case str() | ast.Constant():
            text = name if isinstance(name, str) else _text_of(name)
            return bool(_LIKE_A_NAME.fullmatch(text)) and is_secret_name(text, key_too)
        case ast.Name() | ast.Attribute():
            text = _name_of(name)
            is_named = is_secret_name(text, key_too) or bool(not key_too and _SIGNS_IN.search(text))
            return is_named or _is_secret(getattr(name, "value", None), key_too=False)
        case ast.Subscript(value=value, slice=index):
            is_text = isinstance(index, ast.Constant)
            return _is_secret(index, key_too and is_text) or _is_secret(value, key_too=False)
        case ast.Call(func=func, args=arguments):
            looked_up = arguments[:2] if _name_of(func) in _LOOKUPS else []
            return any(map(_is_secret, looked_up)) or _is_secret(func, key_too=False)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(_is_secret(part, key_too) for part in parts)
        case ast.Starred(value=value):
            return _is_secret(value, key_too)
    return False


def _name_of(node: ast.AST) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "")


def _variable(node: ast.AST | str | None) -> str:
    """Variable changed by an assignment, also to an item."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node if isinstance(node, str) else ""


def _parts(
    value: ast.expr | ast.keyword | ast.comprehension, is_stored: bool
) -> Iterator[ast.expr]:
    """Yield the literals of a value and, if `is_stored` by name, the variables in the value."""
    if isinstance(value, _LITERALS) or (is_stored and isinstance(value, ast.Name)):
        yield value
    children = ast.iter_child_nodes(value)
    if isinstance(value, (ast.Compare, ast.Lambda)):
        return
    if isinstance(value, (ast.Subscript, ast.Attribute)):
        children, is_stored = iter([value.value]), False
    elif isinstance(value, ast.Dict):
        children = iter(value.values)
    elif isinstance(value, ast.Call):
        is_stored = is_stored and _name_of(value.func) == "dict"
        looks_up = _name_of(value.func) in _LOOKUPS
        children = iter([value.func, *value.args[looks_up:], *value.keywords])
    for child in children:
        if isinstance(child, (ast.expr, ast.keyword, ast.comprehension)):
            yield from _parts(child, is_stored)


_STORING = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.comprehension),
    *(ast.arguments, ast.keyword, ast.Dict, ast.Tuple, ast.List),
)


def _secret_literals(tree: ast.Module) -> list[ast.expr]:
    """Possibly secret string literals of a program; a formatted string is one literal.

    Literals of a variable are secret, too, if the variable is stored or passed as a secret.
    """
    nodes, variables, before = list(ast.walk(tree)), set[str](), -1
    while before < len(variables):
        before = len(variables)
        found = [part for node in nodes for part in _secret_parts(node, variables)]
        variables |= {part.id for part in found if isinstance(part, ast.Name)}
    # Up to Python 3.11 the place of a literal within a formatted string is not known.
    around: dict[ast.AST, ast.expr] = {}
    for node in nodes:
        if isinstance(node, _FORMATTED):
            for inner in ast.walk(node):
                around.setdefault(inner, node)
    found += [node for node in nodes if isinstance(node, _LITERALS) and _looks_secret(node)]
    return [around.get(part, part) for part in found if isinstance(part, _LITERALS)]


def _secret_parts(node: ast.AST, variables: set[str]) -> Iterator[ast.expr]:
    for name, value, key_too in _named_values(node):
        is_alias = _variable(name) in variables
        if value is not None and (is_alias or _is_secret(name, key_too)):
            surely = is_alias or _is_secret(name, key_too=False)
            for part in _parts(value, isinstance(node, _STORING) and surely):
                if isinstance(part, ast.Name) or _has_content(_text_of(part)):
                    yield part


_MAGIC = re.compile(r"^([ \t]*)(?:[%!].*|[\w.]+\?{1,2}[ \t]*|\?.*|[\w., ]+=[ \t]*[%!].*)$", re.M)
_LOOSE_LITERAL = re.compile(
    r"""(?P<comment>\#[^\n]*)
    | [rbuftRBUFT]{0,3} (?: \"{3}.*?(?:\"{3}|\Z) | '{3}.*?(?:'{3}|\Z)
        | "(?:\\.|[^"\\\n])*(?:"|$) | '(?:\\.|[^'\\\n])*(?:'|$) )""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


@lru_cache(maxsize=8)
def redacted_source(text: str) -> str:
    """Mask string literals and comments with secrets in code.

    In code that does not parse every string literal is masked. Lines with magics of a notebook are
    masked as text.

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
    first = text.split(maxsplit=1)[:1]
    # Below other magics may be any language.
    is_python = not (first and first[0].startswith("%%")) or first == ["%%diag"]
    for code in () if not is_python else (text, _MAGIC.sub(r"\1pass", text)):
        try:
            lines = _masked_code(code).split("\n")
        except Exception:
            # Code that is not understood: damaged, too deep, or with syntax of a later Python.
            continue
        pairs = zip(text.split("\n"), code.split("\n"), lines, strict=True)
        return "\n".join(
            line if original == plain else _masked_loosely(original)
            for original, plain, line in pairs
        )
    return _masked_loosely(text)


def _masked_code(code: str) -> str:
    tree = parsed(code)
    if tree is None:
        raise ValueError("no code")
    lines = code.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            # A comment ends its line: no literal is moved.
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + redacted_text(token.string)
    encoded = [line.encode() for line in lines]
    starts = list(accumulate((len(line) + 1 for line in encoded), initial=0))

    def offset(line: int | None, column: int | None) -> int:
        # The parser counts lines from 1 on, and columns in bytes.
        return starts[(line or 1) - 1] + (column or 0)

    code_bytes, parts, done = b"\n".join(encoded), list[bytes](), 0
    for start, stop in sorted(
        (offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset))
        for node in _secret_literals(tree)
    ):
        if start >= done:
            parts += [code_bytes[done:start], _mask_of(code_bytes[start:stop].decode()).encode()]
            done = stop
    return b"".join([*parts, code_bytes[done:]]).decode()


def _mask_of(literal: str) -> str:
    """A mask of as many lines."""
    breaks = literal.count("\n")
    return f"'''{MASK}" + "\n" * breaks + "'''" if breaks else f"'{MASK}'"


def _masked_loosely(text: str) -> str:
    def masked(match: re.Match[str]) -> str:
        is_comment = match["comment"] or not _has_content(match[0])
        return match[0] if is_comment else _mask_of(match[0])

    return redacted_text(_LOOSE_LITERAL.sub(masked, text))
