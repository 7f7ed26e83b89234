"""Labels as codes and their values; texts as labels for their heads, and the bytes of the rest."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import Categorical, IntArray, PrefixStrings
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.integers import (
    ColumnsDone,
    Spec,
    decode_integers,
    encode_integers,
)

__all__ = [
    "NotStorableError",
    "decode_labels",
    "decode_texts",
    "encode_labels",
    "encode_texts",
]

_TOKEN = 32
"""The digits of the tokens that end keys: two of them are one byte."""
_STORABLE = frozenset((str, int, float, bool, type(None)))
"""Types of labels that JSON has, too."""
_HEX_DIGITS = b"0123456789abcdef"


class NotStorableError(Exception):
    """A column is of a kind, or holds values, that a file cannot hold."""


def encode_labels(name: str, column: Categorical, done: ColumnsDone, out: ByteWriter) -> Spec:
    """Append the bytes of labels, and return the specification that decodes them."""
    values = column.values
    if not _STORABLE.issuperset(map(type, values)):
        values = tuple(map(_storable, values))
    codes = encode_integers(name, column.codes, "codes", done, out)
    return {"kind": "labels", "codes": codes, "values": values}


def _storable(value: object) -> object:
    plain = value.item() if isinstance(value, np.generic) else value
    if type(plain) not in _STORABLE:
        raise NotStorableError(f"expected labels that are text or numbers, found {value!r}")
    return plain


def decode_labels(name: str, spec: Spec, done: ColumnsDone, source: ByteReader) -> Categorical:
    """The labels that `encode_labels` encoded."""
    codes, values = decode_integers(name, spec["codes"], "codes", done, source), spec["values"]
    if type(values) is not list or any(isinstance(value, (list, dict)) for value in values):
        raise ValueError("expected a list of labels")
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(values):
        raise ValueError(f"expected codes of {len(values)} labels")
    return Categorical(codes, values)


def encode_texts(name: str, column: PrefixStrings, done: ColumnsDone, out: ByteWriter) -> Spec:
    """Append the bytes of texts, and return the specification that decodes them."""
    heads = encode_labels(name, column.heads, done, out)
    lengths, tails = column.encoded
    sizes = encode_integers(name, lengths, "lengths", done, out)
    tokens, others = _split_off_tokens(lengths, tails)
    # They are noise.
    out.append(tokens, plain=True)
    out.append(others)
    spec = {"kind": "texts", "heads": heads, "lengths": sizes, "size": len(others)}
    return {**spec, "tokens": len(tokens)} if tokens else spec


def decode_texts(name: str, spec: Spec, done: ColumnsDone, source: ByteReader) -> PrefixStrings:
    """The texts that `encode_texts` encoded."""
    heads = decode_labels(name, spec["heads"], done, source)
    if not all(isinstance(head, str) for head in heads.values):
        raise ValueError("expected texts")
    lengths = decode_integers(name, spec["lengths"], "lengths", done, source)
    tokens = bytes(source.take(spec.get("tokens", 0), plain=True))
    others = bytes(source.take(spec["size"]))
    _check_lengths(lengths, 2 * len(tokens) + len(others))
    tails = _with_tokens(lengths, tokens, others)
    _check_that_texts_decode(lengths, tails)
    return PrefixStrings.from_encoded(heads, lengths, tails)


def _split_off_tokens(lengths: IntArray, tails: bytes) -> tuple[bytes, bytes]:
    """The bytes that tokens spell, if all tails of a token's length are such; and other tails."""
    are_tokens = np.asarray(lengths == _TOKEN)
    if not are_tokens.any():
        return b"", tails
    mask, characters = np.repeat(are_tokens, lengths), np.frombuffer(tails, np.uint8)
    digits = characters[mask].tobytes()
    if digits.strip(_HEX_DIGITS):
        return b"", tails
    return bytes.fromhex(digits.decode()), characters[~mask].tobytes()


def _with_tokens(lengths: IntArray, tokens: bytes, others: bytes) -> bytes:
    """The tails that `_split_off_tokens` split."""
    if not tokens:
        return others
    mask = np.repeat(lengths == _TOKEN, lengths)
    if 2 * len(tokens) != int(mask.sum()):
        raise ValueError("expected as many tokens as there are texts of their length")
    tails = np.empty(len(mask), np.uint8)
    tails[mask] = np.frombuffer(tokens.hex().encode(), np.uint8)
    tails[~mask] = np.frombuffer(others, np.uint8)
    return tails.tobytes()


def _check_lengths(lengths: IntArray, size: int) -> None:
    """Before anything is as long as they say."""
    if int(lengths.min(initial=0)) < 0 or int(lengths.max(initial=0)) > size:
        raise ValueError("expected lengths of texts")
    if int(lengths.sum()) != size:
        raise ValueError("expected as many bytes as the texts have")


def _check_that_texts_decode(lengths: IntArray, tails: bytes) -> None:
    """Texts are decoded when they are first read, which is too late to call a file damaged."""
    if not tails.isascii():
        tails.decode("utf-8", "surrogatepass")
        stops = np.cumsum(lengths)
        starts = stops[:-1][stops[:-1] < len(tails)]
        if (np.frombuffer(tails, dtype=np.uint8)[starts] & 0xC0 == 0x80).any():
            raise ValueError("expected texts that end where a character does")
