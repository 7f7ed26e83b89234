"""Labels as codes and their values; texts as labels for their heads, and the bytes of the rest."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import Categorical, IntArray, PrefixStrings
from dask_diag.storage.encoding.integers import Decoder, Encoder, Spec

__all__ = ["NotStorableError", "decode_labels", "decode_texts", "encode_labels", "encode_texts"]

_CODES, _LENGTHS = "codes", "lengths"
_TOKEN = 32
"""The digits of the tokens that end keys: two of them are one byte."""
_HEX_DIGITS = b"0123456789abcdef"
_STORABLE = frozenset((str, int, float, bool, type(None)))
"""Types of labels that JSON has, too."""


class NotStorableError(Exception):
    """A column is of a kind, or holds values, that a file cannot hold."""


def encode_labels(column: Categorical, to: Encoder) -> Spec:
    """Append the bytes of labels, and return the specification that decodes them."""
    values = column.values
    if not _STORABLE.issuperset(map(type, values)):
        values = tuple(map(_storable, values))
    return {"values": values, "integers": {_CODES: to.encode(column.codes, _CODES)}}


def _storable(value: object) -> object:
    plain = value.item() if isinstance(value, np.generic) else value
    if type(plain) not in _STORABLE:
        raise NotStorableError(f"expected labels that are text or numbers, found {value!r}")
    return plain


def decode_labels(spec: Spec, source: Decoder) -> Categorical:
    """The labels that `encode_labels` encoded."""
    codes, values = source.decode(spec["integers"][_CODES], _CODES), spec["values"]
    if type(values) is not list or any(isinstance(value, (list, dict)) for value in values):
        raise ValueError("expected a list of labels")
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(values):
        raise ValueError(f"expected codes of {len(values)} labels")
    return Categorical(codes, values)


def encode_texts(column: PrefixStrings, to: Encoder) -> Spec:
    """Append the bytes of texts, and return the specification that decodes them."""
    spec = encode_labels(column.heads, to)
    lengths, tails = column.encoded
    spec["integers"][_LENGTHS] = to.encode(lengths, _LENGTHS)
    if (lengths == _TOKEN).all() and not tails.strip(_HEX_DIGITS):
        tokens = bytes.fromhex(tails.decode())
        to.out.append_planes(tokens)
        return {**spec, "tokens": len(tokens)}
    to.out.append(tails)
    return {**spec, "tails": len(tails)}


def decode_texts(spec: Spec, source: Decoder) -> PrefixStrings:
    """The texts that `encode_texts` encoded."""
    heads = decode_labels(spec, source)
    if not all(isinstance(head, str) for head in heads.values):
        raise ValueError("expected texts")
    lengths = source.decode(spec["integers"][_LENGTHS], _LENGTHS)
    if "tokens" in spec:
        tails = source.source.take_planes(spec["tokens"]).hex().encode()
    else:
        tails = bytes(source.source.take(spec["tails"]))
    _check(lengths, tails)
    return PrefixStrings.from_encoded(heads, lengths, tails)


def _check(lengths: IntArray, tails: bytes) -> None:
    """Texts are decoded when they are first read, which is too late to call a file damaged."""
    if int(lengths.min(initial=0)) < 0 or int(lengths.max(initial=0)) > len(tails):
        raise ValueError("expected lengths of texts")
    if int(lengths.sum()) != len(tails):
        raise ValueError("expected as many bytes as the texts have")
    if not tails.isascii():
        tails.decode("utf-8", "surrogatepass")
        stops = np.cumsum(lengths)
        starts = stops[:-1][stops[:-1] < len(tails)]
        if (np.frombuffer(tails, dtype=np.uint8)[starts] & 0xC0 == 0x80).any():
            raise ValueError("expected texts that end where a character does")
