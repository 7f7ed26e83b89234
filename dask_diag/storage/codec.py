"""The codec of columns: bytes that compress well, and columns from bytes, equal to the bit."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, reduce
from itertools import product
from struct import Struct
from typing import Any

import numpy as np

from dask_diag.columns import (
    Array,
    Categorical,
    FloatArray,
    IntArray,
    PrefixStrings,
    Values,
    concatenate,
)
from dask_diag.model.table import Table

KEY = "key"
NUMBERS = ("collected", "nbytes")
"""Columns of tasks that tell when a result was collected, and its size."""

_MOST_CHUNKS = 64
_MOST_ROWS = 1 << 17
"""Bounds of the tasks that are kept from earlier chunks, and so of a reader's memory."""
_MANY = 2048
_LONG = 16
"""More keys are searched for only if they have so many bytes each: short ones take less in full."""


class RecentTasks:
    """The tasks of the last chunks, the newest first; immutable."""

    def __init__(self, *chunks: _TasksOfChunk) -> None:
        self._chunks = chunks

    def plus(self, tasks: Table) -> RecentTasks:
        """Add the tasks of one more chunk."""
        return RecentTasks(_TasksOfChunk(tasks), *self._chunks)

    def limited(self) -> RecentTasks:
        """Drop the tasks that later chunks may not refer to."""
        rows = np.cumsum([len(chunk.tasks) for chunk in self._chunks], dtype=np.int64)
        return RecentTasks(*self._chunks[: int((rows[:_MOST_CHUNKS] <= _MOST_ROWS).sum())])

    def rows_of(self, keys: PrefixStrings) -> IntArray | None:
        """The rows of the last tasks with keys, counted from the end; None if one is missing."""
        if len(keys) > _MANY and len(keys.encoded[1]) < _LONG * len(keys):
            return None
        texts, before = keys.tolist(), 0
        rows: dict[str, int] = {}
        missing = set(texts)
        for chunk in self._chunks:
            if not missing:
                break
            shared = chunk.rows.keys() & missing
            rows.update((key, before + chunk.rows[key]) for key in shared)
            missing -= shared
            before += len(chunk.tasks)
        return None if missing else np.array([rows[key] for key in texts], np.int64)

    def column(self, name: str, rows: IntArray) -> Values:
        """The values of a column in rows counted from the end; ValueError if a row is missing."""
        last, total, columns = int(rows.max(initial=0)), 0, []
        for chunk in self._chunks:
            columns.append(chunk.tasks[name])
            total += len(chunk.tasks)
            if total > last:
                break
        if total <= last or int(rows.min(initial=0)) < 0:
            raise ValueError(f"expected rows of {total} tasks")
        values: Values = concatenate(columns[::-1])[total - 1 - rows]
        return values


class _TasksOfChunk:
    """The tasks of one chunk."""

    def __init__(self, tasks: Table) -> None:
        self.tasks = Table({name: tasks[name] for name in (KEY, *NUMBERS)})

    @cached_property
    def rows(self) -> dict[str, int]:
        """The row of the last task with each key, counted from the end of the chunk."""
        keys = self.tasks[KEY].tolist()
        return dict(zip(keys, reversed(range(len(keys))), strict=True))


class EarlierChunks:
    """Data of earlier chunks of a file that a chunk refers to, up to the last one that stays.

    Attributes
    ----------
    head : bytes
        The head of the last chunk: the next chunk's is nearly equal.
    tasks : RecentTasks
        The tasks to which results of later chunks refer.
    """

    def __init__(self) -> None:
        self.head = b""
        self.tasks = RecentTasks()

    def advance(self, head: bytes, tasks: RecentTasks) -> None:
        """Add a chunk, with the tasks up to its end."""
        self.head, self.tasks = head, tasks.limited()


_SIZES = Struct("<QQQ")
_GREATEST_RATIO = 1032
"""Most bytes of a deflated byte, which bounds the memory that a file makes its reader allocate."""


class ByteWriter:
    """Collects bytes for a `ByteReader`, in order."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._planes: list[bytes] = []

    def append(self, data: bytes) -> None:
        """Add bytes, of which sequences may repeat."""
        self._data.append(data)

    def append_planes(self, planes: bytes) -> None:
        """Add bytes that are noise or runs of one byte: no other repetition is searched for."""
        self._planes.append(planes)

    def getvalue(self, first: bytes, level: int, like: bytes = b"") -> bytes:
        """Compress all bytes, after the bytes `first`, with a level from 1 to 9.

        Sequences of the dictionary `like`, which the reader must have, too, take next to nothing.
        """
        data, planes = b"".join([first, *self._data]), b"".join(self._planes)
        compressor = zlib.compressobj(level, zdict=like)
        block = compressor.compress(data) + compressor.flush()
        runs = zlib.compressobj(1, strategy=zlib.Z_RLE)
        sizes = _SIZES.pack(len(data), len(block), len(planes))
        return b"".join([sizes, block, runs.compress(planes), runs.flush()])


class ByteReader:
    """Takes bytes from the front, in the order of a `ByteWriter`; ValueError if too few are left.

    Parameters
    ----------
    data : memoryview
        Compressed bytes of `ByteWriter.getvalue`. If they are damaged, some error is raised.
    like : bytes, optional
        The dictionary of `ByteWriter.getvalue`.
    """

    def __init__(self, data: memoryview, like: bytes = b"") -> None:
        size, stored, size_of_planes = _SIZES.unpack_from(data)
        blocks = data[_SIZES.size :]
        self._data = _unpacked(blocks[:stored], size, like)
        self._planes = _unpacked(blocks[stored:], size_of_planes)

    def take(self, size: int) -> memoryview:
        """Take the next bytes."""
        data, self._data = _split(self._data, size)
        return data

    def take_planes(self, size: int) -> memoryview:
        """Take the next bytes of planes."""
        planes, self._planes = _split(self._planes, size)
        return planes


def _split(data: memoryview, size: int) -> tuple[memoryview, memoryview]:
    if type(size) is not int or not 0 <= size <= len(data):
        raise ValueError(f"expected {size!r} bytes, found {len(data)}")
    return data[:size], data[size:]


def _unpacked(block: memoryview, size: int, like: bytes = b"") -> memoryview:
    if size > _GREATEST_RATIO * len(block):
        raise ValueError(f"expected at most {_GREATEST_RATIO} bytes for each of {len(block)}")
    if like:
        decompressor = zlib.decompressobj(zdict=like)
        data = decompressor.decompress(block, size + 1)
        is_all = decompressor.eof and not decompressor.unused_data
    else:
        # Several times as fast, as the size of the memory is known.
        data, is_all = zlib.decompress(block, bufsize=size), True
    if not is_all or len(data) != size:
        raise ValueError(f"expected a block of {size} bytes, found {len(data)}")
    return memoryview(data)


Spec = dict[str, Any]

VALUE, STEP = "", "+"
"""Bases of integers: none, and the row before; any other base is an earlier column."""
FEW = 100
"""Rows up to which a shorter form takes longer than it saves: they are stored unchanged."""


def encode_integers(
    values: Array, base: str, columns: Mapping[str, IntArray], out: ByteWriter
) -> Spec:
    """Append integers to `out`, and return the specification that decodes them.

    A base that is no earlier column means steps from row to row.
    """
    if len(values) <= FEW:
        return _append(values, values.dtype.itemsize, out)
    spec: Spec = {"base": VALUE}
    least, greatest = int(values.min()), int(values.max())
    residual = values.astype(np.int64, copy=False)
    if base != VALUE and least < greatest:
        if base in columns:
            spec, residual = {"base": base}, residual - columns[base]
        else:
            # The first value is in the specification: as a step from 0 it would widen all others.
            spec = {"base": STEP, "first": int(residual[0])}
            residual = np.diff(residual, prepend=residual[:1])
        least, greatest = int(residual.min()), int(residual.max())
    # Counted from the least, no residual is negative: the high bytes of negative ones would be 255,
    # of the others 0.
    width = ((greatest - least).bit_length() + 7) // 8
    return {**_append(residual - least, width, out), **spec, "least": least}


def _append(values: Array, width: int, out: ByteWriter) -> Spec:
    """Append the `width` low bytes of integers, which have no others, plane by plane."""
    cells = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).view(np.uint8)
    planes = cells.reshape(len(values), values.dtype.itemsize).T[:width]
    # So that no small file makes its reader allocate endless rows, there is one plane at least.
    out.append_planes(planes.tobytes() or bytes(len(values)))
    return {"base": VALUE, "least": 0, "planes": width}


def decode_integers(
    spec: Spec, rows: int, columns: Mapping[str, IntArray], source: ByteReader
) -> IntArray:
    """Decode a number of integers of `encode_integers`."""
    values, base = _take(spec, rows, source), spec["base"]
    if base == STEP:
        values = np.cumsum(values)
        values += np.int64(spec["first"])
    elif base != VALUE:
        values = values + columns[base]
    return values


def _take(spec: Spec, rows: int, source: ByteReader) -> IntArray:
    """Take integers without their base."""
    planes = skip_integers(spec, rows, source)
    width, least = spec["planes"], np.int64(spec["least"])
    if not width:
        # One number in memory for all rows.
        return np.broadcast_to(least, rows)
    cells = np.zeros((rows, 8), np.uint8)
    cells[:, :width] = np.frombuffer(planes, np.uint8).reshape(width, rows).T
    values: IntArray = cells.view("<i8").reshape(rows).astype(np.int64, copy=False)
    values += least
    return values


def skip_integers(spec: Spec, rows: int, source: ByteReader) -> memoryview:
    """Take the bytes of integers without decoding."""
    if not 0 <= spec["planes"] <= 8:
        raise ValueError(f"expected up to eight planes, found {spec['planes']!r}")
    return source.take_planes(rows * max(1, spec["planes"]))


DIFFERENCES = {"thread_noncpu": ("stop", "start", "thread_cpu")}
"""Columns that are nearly one column minus others, except for rounding errors."""

RENAMED = {
    "children_cpu": "cpu_children",
    "cpu_others": "cpu_other_processes",
    "ends_cpu": "cpu_ends",
    "hooks_cpu": "cpu_hooks",
    "others_cpu": "cpu_other_processes",
    "own_threads_cpu": "cpu_own_threads",
    "process_cpu": "cpu_process",
    "scheduler_cpu": "cpu_scheduler",
}
"""Names of columns in files of version 7, and their names since."""

SCALES = (1, 1_000_000, 1_000_000_000)
"""Scales of whole numbers, whole microseconds and whole nanoseconds."""
_LARGEST_COUNT = 2.0**62
_SAMPLE = 64
_TOKEN = 32
"""Hexadecimal digits of the tokens that end keys."""
_HEX_DIGITS = b"0123456789abcdef"
_STORABLE = frozenset((str, int, float, bool, type(None)))
"""Types of labels that JSON has, too."""

Parts = dict[str, Array]
"""The integers of a column, by their part in it."""


class NotStorableError(Exception):
    """A column has a kind or values that a file cannot hold."""


def split(name: str, table: Table, tasks: RecentTasks | None) -> tuple[Spec, Parts, bytes]:
    """A specification of a column, its integers, and the bytes of its texts."""
    column = table[name]
    if isinstance(column, Categorical):
        return {"kind": "labels", "values": _storable(column)}, {"codes": column.codes}, b""
    if isinstance(column, PrefixStrings):
        if tasks and name == KEY and (rows := tasks.rows_of(column)) is not None:
            return {"kind": "tasks"}, {"rows": rows}, b""
        parts, tails = _split_texts(column)
        return {"kind": "texts", "values": _storable(column.heads)}, parts, tails
    if isinstance(column, np.ndarray) and column.ndim == 1 and _is_number(column.dtype):
        spec, parts = _split_numbers(name, column, table)
        return {"kind": "numbers", "dtype": column.dtype.str, **spec}, parts, b""
    kind = getattr(column, "dtype", type(column).__name__)
    raise NotStorableError(f"expected a flat array of numbers, labels or texts, found {kind}")


def join(
    spec: Spec,
    parts: Parts,
    tails: bytes,
    columns: Mapping[str, Values],
    tasks: RecentTasks | None,
) -> Values:
    """Join a column that was split."""
    kind = spec["kind"]
    if kind == "labels":
        return _labels(parts["codes"], spec["values"])
    if kind == "texts":
        return _joined_texts(_labels(parts["heads"], spec["values"]), parts, tails)
    if kind == "tasks" and tasks:
        return tasks.column(KEY, parts["rows"])
    if kind == "numbers":
        return _joined_numbers(spec, parts, columns)
    raise ValueError(f"expected a kind of column, found {kind!r}")


def _storable(column: Categorical) -> list[object]:
    """The labels of a column as JSON values."""
    values = [value.item() if isinstance(value, np.generic) else value for value in column.values]
    for value in values:
        if type(value) not in _STORABLE:
            raise NotStorableError(f"expected labels that are text or numbers, found {value!r}")
    return values


def _labels(codes: IntArray, values: object) -> Categorical:
    if type(values) is not list or any(isinstance(value, (list, dict)) for value in values):
        raise ValueError("expected a list of labels")
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(values):
        raise ValueError(f"expected codes of {len(values)} labels")
    return Categorical(codes, values)


def _split_texts(column: PrefixStrings) -> tuple[Parts, bytes]:
    lengths, tails = column.encoded
    parts = {"heads": column.heads.codes}
    # Capital letters are no digits here: they would come back as small letters.
    if not (lengths == _TOKEN).all() or tails.strip(_HEX_DIGITS):
        return {**parts, "lengths": lengths}, tails
    tokens = np.frombuffer(bytes.fromhex(tails.decode()), "<i8")
    return {**parts, "low": tokens[::2], "high": tokens[1::2]}, b""


def _joined_texts(heads: Categorical, parts: Parts, tails: bytes) -> PrefixStrings:
    if "high" in parts:
        tokens = np.stack([parts["low"], parts["high"]], axis=1).astype("<i8")
        lengths, tails = np.full(len(heads), _TOKEN), tokens.tobytes().hex().encode()
    else:
        lengths = parts["lengths"]
    if not all(isinstance(head, str) for head in heads.values):
        raise ValueError("expected texts")
    if int(lengths.min(initial=0)) < 0 or int(lengths.max(initial=0)) > len(tails):
        raise ValueError("expected lengths of texts")
    if int(lengths.sum()) != len(tails):
        raise ValueError("expected as many bytes as the texts have")
    texts = PrefixStrings.from_encoded(heads, lengths, tails)
    if not tails.isascii():
        # Texts are decoded when they are first read: too late to call a file damaged.
        texts.tails()
    return texts


def _split_numbers(name: str, column: Array, table: Table) -> tuple[Spec, Parts]:
    values = column.astype(column.dtype.newbyteorder("="), copy=False)
    bits = values.view(f"i{values.itemsize}")
    if values.dtype != np.float64 or len(values) <= FEW or bits.min() == bits.max():
        return {}, {"bits": bits}
    sources = DIFFERENCES.get(name, ())
    before = table.columns[: table.columns.index(name)]
    if sources and all(s in before and isinstance(table[s], np.ndarray) for s in sources):
        predicted = _difference([table[source] for source in sources])
        return {"sources": sources}, {"error": bits - predicted}
    scale = _scale_of(values)
    count = counted(values, scale)
    # A division need not give back the float that was counted. The error of its bits is nearly
    # always 0, and then takes no bytes; so every float comes back with any scale.
    return {"scale": scale}, {"count": count, "error": bits - _quotient(count, scale)}


def _joined_numbers(spec: Spec, parts: Parts, columns: Mapping[str, Values]) -> Array:
    dtype = np.dtype(str(spec["dtype"]))
    if not _is_number(dtype):
        raise ValueError(f"expected numbers, found {dtype}")
    if "bits" in parts:
        bits = parts["bits"]
    elif (dtype.kind, dtype.itemsize) != ("f", 8):
        raise ValueError(f"expected 64-bit floats, found {dtype}")
    elif "sources" in spec:
        bits = parts["error"] + _difference([columns[source] for source in spec["sources"]])
    else:
        bits = parts["error"] + _quotient(parts["count"], spec["scale"])
    if dtype.itemsize < 8:
        bits = bits.astype(f"i{dtype.itemsize}")
    values: Array = bits.view(dtype.newbyteorder("="))
    return values.astype(dtype, copy=False)


def _is_number(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def _scale_of(values: FloatArray) -> int:
    """The smallest scale by which a sample of a column is whole, or the last scale."""
    # A sample is enough: a wrong scale costs bytes, and never a value.
    sample = values[:: max(1, len(values) // _SAMPLE)]
    sample = sample[np.isfinite(sample)]
    with np.errstate(over="ignore"):
        fits = (s for s in SCALES if (np.rint(sample * s) / s == sample).all())
        return next(fits, SCALES[-1])


def counted(values: FloatArray, scale: int) -> IntArray:
    """The integers nearest to `scale` times the values, or 0 for values without a near integer."""
    is_countable = np.abs(values) < _LARGEST_COUNT / scale
    count: IntArray = np.rint(np.where(is_countable, values, 0.0) * scale).astype(np.int64)
    return count


def _quotient(count: IntArray, scale: int) -> IntArray:
    """The bits of floats that are a count divided by a scale."""
    if scale not in SCALES:
        raise ValueError(f"expected a scale, found {scale!r}")
    return (count / scale).view(np.int64)


def _difference(columns: Sequence[Values]) -> IntArray:
    """The bits of the first column minus the others; the bits of 0 if that is not finite."""
    with np.errstate(all="ignore"):
        values = reduce(np.subtract, [np.asarray(column, float) for column in columns])
    # The bits of NaN differ between processors.
    return np.where(np.isfinite(values), values, 0.0).view(np.int64)


TASK_PREFIX = "tasks."
"""Prefix of the name of a column of the tasks to which keys of results refer."""
BASES: Mapping[str, str] = {
    "start": STEP,
    "stop": "start",
    "submitted": "start",
    "collected": "stop",
    "time": STEP,
    # Rows of tasks.
    "task": STEP,
    "depends_on": STEP,
    "cached_results.key": STEP,
    # A result is cached when its task is collected, and has the size that the task has.
    "cached_results.start": f"{TASK_PREFIX}collected",
    "metric": f"{TASK_PREFIX}nbytes",
    # Results are released together.
    "cached_results.stop": STEP,
    # A worker has one process and one thread, so their codes are the same.
    "pid": "worker",
    "thread": "worker",
    # Tasks that are ready together are sent one after the other.
    "queued": "submitted",
}
"""Columns and the base that they are stored relative to, so that none is searched for.

The key of a column that has a base in one table only begins with the table's name. A file has the
base of each column: its reader does not need this mapping.
"""
_RELATIVE = frozenset({"bits", "codes", "count", "rows"})
"""Parts of columns that have bases; the errors of floats have none."""
_Encoded = dict[object, dict[str, IntArray]]
"""Integers of the columns so far, by part and scale: nanoseconds are relative to nanoseconds."""


def encode_table(
    table: Table, out: ByteWriter, name: str = "", tasks: RecentTasks | None = None
) -> Spec:
    """Append a table's bytes to `out`, and return the specification that decodes them.

    The `name` of the table tells the bases of its columns. With `tasks`, keys may be stored as
    rows of tasks.
    """
    specs: dict[str, Spec] = {}
    encoded: _Encoded = {}
    for column in table.columns:
        try:
            spec, parts, tails = split(column, table, tasks)
        except NotStorableError as error:
            raise NotStorableError(f"column {column!r}: {error}") from None
        base = BASES.get(f"{name}.{column}", BASES.get(column, VALUE))
        integers = {}
        for part, values in parts.items():
            before = _before(encoded, part, spec)
            its_base = base if part in _RELATIVE else VALUE
            integers[part] = encode_integers(values, its_base, before, out)
            before[column] = values
        if tasks and "rows" in parts:
            _remember(encoded, tasks, parts["rows"])
        specs[column] = {**spec, "integers": integers}
        if tails:
            out.append(tails)
            specs[column]["tails"] = len(tails)
    return {"rows": len(table), "columns": specs}


def decode_table(
    spec: Spec,
    source: ByteReader,
    tasks: RecentTasks | None = None,
    wanted: Collection[str] | None = None,
) -> Table:
    """Decode a table of `encode_table`; any damage raises some error.

    With `wanted` columns the table has no others, and bytes of columns that these do not need are
    passed over: a live view shows a few columns, and most of its time would be decoding the others.
    """
    rows = spec["rows"]
    specs = {RENAMED.get(column, column): of_it for column, of_it in spec["columns"].items()}
    needed = _needed(specs, specs if wanted is None else wanted)
    encoded: _Encoded = {}
    columns: dict[str, Values] = {}
    for column, column_spec in specs.items():
        parts = {}
        for part, integers in column_spec["integers"].items():
            if column in needed:
                before = _before(encoded, part, column_spec)
                parts[part] = before[column] = decode_integers(integers, rows, before, source)
            else:
                skip_integers(integers, rows, source)
        if tasks and "rows" in parts:
            _remember(encoded, tasks, parts["rows"])
        tails = bytes(source.take(column_spec["tails"])) if "tails" in column_spec else b""
        if column in needed:
            columns[column] = join(column_spec, parts, tails, columns, tasks)
    return Table({name: columns[name] for name in columns if wanted is None or name in wanted})


def _before(encoded: _Encoded, part: str, spec: Spec) -> dict[str, IntArray]:
    """Integers of the columns so far, in the unit of a part of a column."""
    return encoded.setdefault((part, spec.get("scale")), {})


def _remember(encoded: _Encoded, tasks: RecentTasks, rows: IntArray) -> None:
    """Add columns of the tasks in these rows, to which columns of results are relative."""
    if len(rows) > FEW:
        for name, scale in product(NUMBERS, SCALES):
            count = counted(np.asarray(tasks.column(name, rows), float), scale)
            _before(encoded, "count", {"scale": scale})[f"{TASK_PREFIX}{name}"] = count


def _needed(specs: dict[str, Spec], wanted: Collection[str]) -> set[str]:
    """The wanted columns, and the columns that they are stored relative to."""
    needed = set(wanted)
    # From the last column to the first, as a base comes before the columns relative to it.
    for name, spec in reversed(specs.items()):
        if name in needed:
            needed.update(spec.get("sources", ()))
            bases = [integers["base"] for integers in spec["integers"].values()]
            needed.update(KEY if base.startswith(TASK_PREFIX) else base for base in bases)
    return needed
