"""Columns come back from their bytes equal to the bit, whatever is in them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import strategies as st

from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.table import Table
from dask_diag.model.tables import TABLES
from dask_diag.storage.codec import (
    ByteReader,
    ByteWriter,
    NotStorableError,
    decode_table,
    encode_table,
)

from .recordings import assert_same_table

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("error")]

DTYPES = ["?", "i1", "u1", "<i2", ">i4", "u4", "<i8", ">i8", "u8", ">u8", "f2", "f4", ">f4"]
CLOCK = 10**12
"""Nanoseconds, as of a machine that has run for a quarter of an hour."""


def encoded(table, name=""):
    """The specification as it is in a file, and the bytes."""
    out = ByteWriter()
    spec = encode_table(table, out, name)
    text = json.dumps(spec, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return json.loads(text.decode("utf-8", "surrogatepass")), out.getvalue(b"", 4)


def assert_comes_back(table, name=""):
    spec, data = encoded(table, name)
    source = ByteReader(memoryview(data))
    assert_same_table(decode_table(spec, source), table)
    for take in (source.take, source.take_planes):
        with pytest.raises(ValueError, match="expected 1 bytes, found 0"):
            take(1)
    return spec, len(data)


def from_bits(bits):
    return np.array(bits, np.uint64).view(np.float64)


ODD_FLOATS = [
    *(0.0, -0.0, 1.0, -1.0, 0.1 + 0.2, 5e-324, -5e-324, 2.2250738585072014e-308),
    *(1.7976931348623157e308, np.inf, -np.inf, 2.0**53, 2.0**62, 2.0**63, 2.0**62 / 1e9),
    *from_bits([0x7FF8 << 48, 0xFFF8 << 48, 0x7FF0000000000001, 0x7FFDEADBEEF00000]).tolist(),
    *(1178.247495337, 1e-9, 0.5e-9, 4294967296.000000001),
]

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
any_label = st.one_of(any_text, st.integers(), st.floats(), st.booleans(), st.none())


def float_columns(rows):
    clock_readings = st.integers(0, 2**52).map(lambda n: n / 1e9)
    whole_numbers = st.integers(-(2**53), 2**53).map(float)
    any_bits = st.integers(0, 2**64 - 1).map(lambda n: from_bits([n])[0])
    numbers = st.one_of(clock_readings, whole_numbers, st.sampled_from(ODD_FLOATS), any_bits)
    columns = st.lists(numbers, min_size=rows, max_size=rows).map(lambda v: np.array(v, float))
    return st.one_of(columns, columns.map(lambda column: column.astype(">f8")))


def long_column(rng, rows, columns):
    """A column of one of the kinds that recordings have, or that could be taken for one."""
    floats = [c for c in columns if isinstance(c, np.ndarray) and c.dtype == float]
    kind = rng.integers(12)
    if kind == 0:
        return np.sort(rng.integers(CLOCK, CLOCK + 10**10, rows)) / 1e9
    with np.errstate(all="ignore"):
        if kind == 1 and floats:
            return floats[-1] + rng.integers(-1000, 10**6, rows) / 1e9
        if kind in (2, 3) and len(floats) >= kind:
            return np.subtract.reduce([floats[n] for n in rng.permutation(len(floats))[:kind]])
    if kind == 4:
        return rng.random(rows) + rng.integers(10) - rng.random()
    if kind == 5:
        return rng.integers(0, 2**63, rows).astype(np.uint64).view(np.float64)
    if kind == 6:
        return rng.integers(-(2**63), 2**63 - 1, rows)
    if kind == 7:
        return np.full(rows, rng.integers(-3, 3) * 2**40)
    if kind == 8:
        return np.arange(rows).astype(rng.choice(["u1", "<i4", "u8", "f4"]))
    if kind == 9:
        return Categorical.of(rng.choice([1, 70_000], p=[0.9, 0.1], size=rows).tolist())
    if kind == 10:
        return PrefixStrings.of(f"('x-{n % 5}', {n})" for n in rng.integers(0, 10**6, rows))
    return rng.integers(0, 10**12, rows).astype(float)


def with_exceptions(column, rng):
    """The same, but for some rows, which may be outside of any sample."""
    if isinstance(column, np.ndarray) and len(column) and rng.random() < 0.5:
        column = column.copy()
        share = rng.choice([1 / len(column), 0.02, 0.6])
        rows = rng.random(len(column)) < share
        rows[rng.integers(len(column))] = True
        odd = ODD_FLOATS if column.dtype == float else [0, 1, 100]
        column[rows] = rng.choice(odd, rows.sum())
    return column


@pytest.mark.parametrize("seed", range(40))
def test_long_tables_come_back(seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.choice([2, 3, 511, 512, 513, 514, 4000]))
    columns = []
    for _ in range(6):
        columns.append(with_exceptions(long_column(rng, rows, columns), rng))
    before = [np.array(column) for column in columns if isinstance(column, np.ndarray)]
    assert_comes_back(Table({f"c{n}": column for n, column in enumerate(columns)}))
    # The caller's arrays stay as they are.
    after = [column for column in columns if isinstance(column, np.ndarray)]
    assert [column.tobytes() for column in after] == [column.tobytes() for column in before]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        *(
            (column, "a flat array of numbers")
            for column in (np.zeros(2, object), np.zeros((2, 2)), np.zeros(2, complex), [1, 2])
        ),
        *(
            (Categorical([0], [label]), "labels that are text or num")
            for label in (b"x", (1,), 1j, np.datetime64(0, "s"))
        ),
    ],
)
def test_columns_that_cannot_be_stored_are_refused_by_their_name(column, expected):
    with pytest.raises(NotStorableError, match=f"column 'a': expected {expected}"):
        encode_table(Table({"a": column}), ByteWriter())


# What makes them small.


def stored_bytes(**columns):
    """Bytes a row of the last of these columns of tasks."""
    table = Table(columns)
    *before, _ = columns
    others = Table({name: columns[name] for name in before})
    without = len(encoded(others, "tasks")[1]) if before else 0
    return (len(encoded(table, "tasks")[1]) - without) / len(table)


ROWS = 20_000
RNG = np.random.default_rng(1)
START = np.cumsum(RNG.integers(0, 60_000, ROWS)) + CLOCK
DURATION = RNG.integers(0, 60_000, ROWS)


def token(rng):
    return rng.bytes(16).hex()


def test_clock_readings_are_stored_as_nanoseconds_from_one_row_or_column_to_the_next():
    start, stop = START / 1e9, (START + DURATION) / 1e9
    assert stored_bytes(start=start) < 2.1
    assert stored_bytes(start=start, stop=stop) < 2.1
    # Of what is no whole number of nanoseconds, such as differences of clock readings, the
    # rounding errors are noise that takes two bytes more.
    assert 3 < stored_bytes(thread_cpu=start[1:] + 1.0 / 3 - (start[0] + 1.0 / 3)) < 6.5
    # Whole microseconds are stored as such.
    sent = np.cumsum(RNG.integers(0, 255, ROWS)) + CLOCK // 1000
    assert stored_bytes(start=sent / 1e6) < 1.1
    assert stored_bytes(start=sent * 1000 / 1e9) < 1.1
    # Noise takes its own bytes and no more, as do tokens at the end of texts.
    assert 7.7 < stored_bytes(a=RNG.integers(0, 2**62, ROWS)) < 8.02
    assert stored_bytes(key=PrefixStrings.of(f"no_op-{token(RNG)}" for _ in range(ROWS))) < 16.1


def test_a_difference_of_columns_takes_next_to_nothing():
    start, stop, cpu = START / 1e9, (START + DURATION) / 1e9, RNG.random(ROWS) * 1e-5
    columns = {"start": start, "stop": stop, "thread_cpu": cpu}
    assert stored_bytes(**columns, thread_noncpu=stop - start - cpu) < 0.01
    off = stop - start - cpu
    off[7] = np.nextafter(off[7], 1)
    assert stored_bytes(**columns, thread_noncpu=off) < 0.02
    # As of tasks that did not stop.
    columns["stop"] = np.where(RNG.random(ROWS) < 0.01, np.nan, stop)
    assert stored_bytes(**columns, thread_noncpu=columns["stop"] - start - cpu) < 0.1
    without = {"stop": stop, "thread_noncpu": stop - start}
    assert_comes_back(Table(without), "tasks")


def test_what_is_the_same_in_all_rows_takes_next_to_nothing():
    assert stored_bytes(a=np.full(ROWS, 12345.678)) < 0.05
    assert stored_bytes(a=Categorical(np.zeros(ROWS, int), ["x"])) < 0.01
    worker = RNG.integers(0, 16, ROWS)
    assert 0.4 < stored_bytes(worker=Categorical(worker, [f"w{n}" for n in range(16)])) < 0.65
    both = {"worker": Categorical(worker, range(16)), "thread": Categorical(worker, range(16, 32))}
    assert stored_bytes(**both) < 0.01


TOKENS = {
    "tokens": [token(RNG) for _ in range(20)],
    "among others": [token(RNG) if row % 3 else str(row) for row in range(20)],
    "capitals": [token(RNG).upper() for _ in range(20)],
    "one letter is none of a token": [*(token(RNG) for _ in range(19)), "g" * 32],
    "no letters": ["é" * 16, *(token(RNG) for _ in range(19))],
    "longer": [token(RNG) + "0" for _ in range(20)],
    "spaces": [" " * 32, "a b " * 8],
}


@pytest.mark.parametrize("tails", TOKENS.values(), ids=TOKENS)
def test_texts_like_tokens_come_back(tails):
    heads = Categorical(np.zeros(len(tails), int), ["x-"])
    assert_comes_back(Table({"a": np.arange(len(tails)), "key": PrefixStrings(heads, tails)}))


@pytest.mark.parametrize(
    "name", ["tasks", "cached_results", "transfers", "dependencies", "samples"]
)
@pytest.mark.parametrize("seed", range(3))
def test_tables_of_a_recording_come_back_whatever_is_in_them(name, seed):
    rng = np.random.default_rng(seed)
    for rows in (1, 100, 101, 600):
        columns = {}
        for column in rng.permutation(list(TABLES[name].schema))[: rng.integers(1, 30)]:
            new = long_column(rng, rows, list(columns.values()))
            columns[str(column)] = with_exceptions(new, rng)
        assert_comes_back(Table(columns), name)


@pytest.mark.parametrize("dtype", [*DTYPES, "<f8", ">f8"])
def test_a_number_that_is_repeated_is_stored_as_one_in_every_row(dtype):
    repeated = np.broadcast_to(np.array([1], dtype), 300).reshape(300)
    assert repeated.strides == (0,)
    columns = {"worker": Categorical(repeated.astype(int), [0, 7]), "stop": np.arange(300.0)}
    once, in_rows = (Table({**columns, "start": start}) for start in (repeated, repeated.copy()))
    assert encoded(once, "tasks") == encoded(in_rows, "tasks")
    assert_comes_back(once, "tasks")


def test_labels_come_back_with_their_types_and_those_of_numpy_as_those_of_python():
    labels = [np.int64(3), np.float64(0.5), np.str_("x"), np.bool_(True), None, 3.0, 1, False, -0.0]
    spec, data = encoded(Table({"a": Categorical(range(len(labels)), labels)}))
    back = decode_table(spec, ByteReader(memoryview(data)))["a"]
    assert repr(back.values) == repr((3, 0.5, "x", True, None, 3.0, 1, False, -0.0))
