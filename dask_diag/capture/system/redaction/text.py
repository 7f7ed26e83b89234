"""What looks like a secret in names, text and values, and the same without it.

No rule recognises every secret. These look for names that say it (``password = …``), addresses with
a user, and the shapes that tokens have. In doubt they mask too much rather than too little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise

__all__ = ["MASK", "UNKNOWN", "is_secret_name", "looks_secret", "redacted_repr", "redacted_text"]

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
