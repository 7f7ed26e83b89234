"""Calls for which there is a faster one: each is found, its advice is faster, and is silent."""

import ast
import copy
import csv
import datetime
import gzip
import io
import json
import logging
import lzma
import math
import operator
import re
import sqlite3
import statistics
import sys
import time
from functools import lru_cache

import dask
import numpy as np
import pytest

from dask_diag import load, record
from tests.recordings import MAIN, Task, by_code, check, run, with_stacks

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.leaves_files

RECORDED = 1.0, 2.0, 3.0
"""Seconds in which a call is repeated while it is recorded: longer where samples were too few."""
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.random(5000), "b": RNG.random(5000)})
KEYED = pd.DataFrame({"key": RNG.integers(0, 2000, 50_000), "value": RNG.random(50_000)})
LONG = pd.Series(RNG.random(500_000))
LARGE = RNG.random(300_000)
TEXT = "a;b;c\n" + "\n".join(f"{n};{n * 2};{n * 0.5}" for n in range(20_000))
TIMES = [f"2020-01-{n % 28 + 1:02d} 10:00:00" for n in range(10_000)]
WORDS = " ".join(map(str, RNG.integers(0, 1000, 100_000))).encode()
RECORDS = [{"n": n, "values": [1, 2, 3]} for n in range(5000)]
STRINGS = pd.Series([f"Some Text {n}" for n in range(400_000)], dtype=object)


def split(value):
    return value * 2 if value > 0.5 else 0.0


def spread(values):
    return values.max() - values.min()


def grown_by_concat():
    table = FRAME
    for _ in range(100):
        table = pd.concat([table, FRAME])
    return len(table)


def grown_by_append():
    values = np.array([])
    for number in range(10_000):
        values = np.append(values, number)
    return len(values)


def grown_by_loc():
    table = pd.DataFrame(columns=["a", "b"])
    for number in range(600):
        table.loc[len(table)] = [number, number]
    return len(table)


def rows_of_iterrows():
    return sum(row["a"] for _, row in FRAME.iterrows())


def elements():
    return sum(FRAME.loc[n, "a"] for n in range(len(FRAME)))


def rows():
    return sum(FRAME.iloc[n]["a"] for n in range(len(FRAME)))


def elements_set():
    table = FRAME.copy()
    for n in range(len(table)):
        table.at[n, "a"] = n
    return table


def csv_rows():
    return sum(float(row["c"]) for row in csv.DictReader(io.StringIO(TEXT), delimiter=";"))


def read_csv(**options):
    return pd.read_csv(io.StringIO(TEXT), sep=";", **options)


def compressed(level):
    with gzip.open(io.BytesIO(), "wb", compresslevel=level) as file:
        file.write(WORDS)


def saved(save):
    save(io.BytesIO(), values=np.cumsum(RNG.integers(0, 9, 300_000)))


def png(level):
    image = pytest.importorskip("PIL.Image")
    values = RNG.integers(0, 9, (400, 400))
    image.fromarray(values.astype("u1")).save(io.BytesIO(), "PNG", compress_level=level)


def logger():
    made = logging.getLogger("tests.faster")
    made.setLevel(logging.INFO)
    made.propagate = False
    if not made.handlers:
        handler = logging.StreamHandler(io.StringIO())
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        made.addHandler(handler)
    return made


def logged(times):
    for n in range(times):
        logger().info("row %d", n)


def patterns(names):
    return [re.compile(rf"(\d+)-{n}-([a-z]+)").search("12-3-abc") for n in names]


@lru_cache
def yaml_of_records():
    yaml = pytest.importorskip("yaml")
    if not hasattr(yaml, "CSafeLoader"):
        pytest.skip("a yaml without libyaml")
    return yaml, yaml.safe_dump(RECORDS[:300])


def yaml_slow():
    yaml, text = yaml_of_records()
    return yaml.safe_load(text)


def yaml_fast():
    yaml, text = yaml_of_records()
    return yaml.load(text, Loader=yaml.CSafeLoader)


def database(with_index):
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.execute("create table rows (a, b)")
    connection.executemany("insert into rows values (?, ?)", [(n, n) for n in range(20_000)])
    if with_index:
        connection.execute("create index by_a on rows (a)")
    return connection


def asked(connection):
    found = []
    for n in range(100):
        found.append(connection.execute("select b from rows where a = ?", (n,)).fetchone())
    return found


SLOW, INDEXED = database(False), database(True)
IN_LOOPS = {"concat", "execute"}
"""Calls that are known by the bytecode around them; Python 3.10 does not say where it stands."""
PAIRS = {
    "concat": (grown_by_concat, lambda: pd.concat([FRAME] * 101)),
    "append": (grown_by_append, lambda: np.array(list(range(10_000)))),
    "loc": (grown_by_loc, lambda: pd.DataFrame([(n, n) for n in range(600)], columns=["a", "b"])),
    "strptime": (
        lambda: [datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S") for text in TIMES],
        lambda: pd.to_datetime(pd.Series(TIMES), format="%Y-%m-%d %H:%M:%S"),
    ),
    "apply": (
        lambda: FRAME.apply(lambda row: row.a * row.b, axis=1),
        lambda: FRAME.a * FRAME.b,
    ),
    "iterrows": (rows_of_iterrows, lambda: FRAME.a.sum()),
    "map": (
        lambda: LONG.map(split),
        lambda: np.where(LONG > 0.5, LONG * 2, 0),
    ),
    "rolling": (
        lambda: FRAME.a.rolling(10).apply(spread),
        lambda: FRAME.a.rolling(10).max() - FRAME.a.rolling(10).min(),
    ),
    "groups": (
        lambda: KEYED.groupby("key").value.apply(spread),
        lambda: KEYED.groupby("key").value.max() - KEYED.groupby("key").value.min(),
    ),
    "groups, to several numbers": (
        lambda: KEYED.groupby("key").value.apply(
            lambda values: pd.Series({"low": values.min(), "high": values.max()})
        ),
        lambda: KEYED.groupby("key").value.agg(["min", "max"]),
    ),
    "vectorize": (lambda: np.vectorize(split)(LARGE), lambda: np.where(LARGE > 0.5, LARGE * 2, 0)),
    "along axis": (
        lambda: np.apply_along_axis(operator.itemgetter(0), 1, LARGE.reshape(-1, 3)),
        lambda: LARGE.reshape(-1, 3)[:, 0],
    ),
    "elements": (elements, lambda: FRAME.a.sum()),
    "rows": (rows, lambda: FRAME.a.sum()),
    "elements set": (elements_set, lambda: FRAME.assign(a=np.arange(len(FRAME)))),
    "strings": (
        lambda: STRINGS.str.lower(),
        lambda strings=STRINGS.astype("string[pyarrow]"): strings.str.lower(),
    ),
    "python engine": (lambda: read_csv(engine="python"), read_csv),
    "genfromtxt": (
        lambda: np.genfromtxt(io.StringIO(TEXT), delimiter=";", skip_header=1),
        lambda: read_csv().to_numpy(),
    ),
    "DictReader": (csv_rows, lambda: read_csv().c.sum()),
    "literal_eval": (
        lambda text=str(RECORDS): ast.literal_eval(text),
        lambda text=json.dumps(RECORDS): json.loads(text),
    ),
    "gzip": (lambda: compressed(9), lambda: compressed(1)),
    "savez": (lambda: saved(np.savez_compressed), lambda: saved(np.savez)),
    "PNG": (lambda: png(9), lambda: png(1)),
    "log": (lambda: logged(2000), lambda: logged(1)),
    "deepcopy": (
        lambda: copy.deepcopy(RECORDS),
        lambda: [{**one, "values": list(one["values"])} for one in RECORDS],
    ),
    "statistics": (
        lambda values=LARGE[:20_000].tolist(): statistics.stdev(values),
        lambda values=LARGE[:20_000].tolist(): np.std(values, ddof=1),
    ),
    "text for people": (lambda: FRAME.to_string(), lambda: FRAME.to_csv()),
    "patterns": (lambda: patterns(range(600)), lambda: patterns([3] * 600)),
    "yaml": (yaml_slow, yaml_fast),
    "execute": (lambda: asked(SLOW), lambda: asked(INDEXED)),
}


def seconds_of(call):
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def repeated(call, seconds):
    """Call it for so many seconds, as a task does."""
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        call()


def found_in(call, path, seconds=RECORDED[0]):
    # Where NumPy releases the GIL more often than once in this interval, a waiting sampler hardly
    # gets it: see docs/numbers.rst. The rules are asked here, not the sampler.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        with record(path, overwrite=True):
            dask.compute(dask.delayed(repeated)(call, seconds), scheduler="synchronous")
    finally:
        sys.setswitchinterval(interval)
    return by_code(load(path)).get("slow-call")


@pytest.mark.parametrize("name", PAIRS)
def test_the_advice_for_each_call_is_faster_and_silent(name, tmp_path, retried):
    slow, fast = PAIRS[name]
    if name in IN_LOOPS and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 does not say where in the bytecode a call is")

    def measure():
        assert min(seconds_of(fast) for _ in range(3)) < seconds_of(slow) / 1.5
        # A sampler that hardly gets the GIL has too few samples at times.
        found = (found_in(slow, tmp_path / "slow.diag", seconds) for seconds in RECORDED)
        assert any(finding and "test_faster_calls.py" in finding.evidence for finding in found)

    retried(measure)


FEW_GROUPS = KEYED.assign(key=KEYED.key % 3)
NUMBERS = {n: n * 2 for n in range(2000)}


def window():
    values = LARGE[:100_000]
    for _ in range(100):
        values = np.concatenate([values[1_000:], LARGE[:1_000]])
    return values


def begun_anew():
    for _ in range(100):
        table = FRAME
        table = pd.concat([table, FRAME])
    return table


class Pipeline:
    """What has a method `execute`, and asks no database."""

    def execute(self):
        return sum(n * n for n in range(10_000))


def pipelines():
    return [Pipeline().execute() for _ in range(10)]


def one_after_the_other():
    pipeline = Pipeline()
    total = 0
    for _ in range(10):
        total += pipeline.execute()
    return total


def templates():
    jinja2 = pytest.importorskip("jinja2")
    return pd.Series([f"{{{{ a{n} }}}} of {n}" for n in range(100)]).map(jinja2.Template)


SILENT = {
    "a window": window,
    "a table for each round": begun_anew,
    "pipelines": pipelines,
    "a pipeline": one_after_the_other,
    # Another package does the work, whoever calls it.
    "templates": templates,
    "long slices by signature": lambda: np.vectorize(np.sort, signature="(n)->(n)")(
        LARGE.reshape(3, -1)
    ),
    # Columns of Arrow have no lists.
    "lists of words": lambda: STRINGS[:50_000].str.split(" "),
    "fixed widths": lambda: pd.read_fwf(io.StringIO(TEXT)),
    "a quick mean": lambda values=LARGE.tolist(): statistics.fmean(values),
    "columns": lambda: FRAME.apply(lambda column: column.rolling(50).mean()),
    "a mapping": lambda: KEYED.key.map(NUMBERS),
    "large groups": lambda: FEW_GROUPS.groupby("key").value.apply(spread),
    "large groups, to several numbers": lambda: FEW_GROUPS.groupby("key").value.apply(
        lambda values: pd.Series({"low": values.min(), "median": values.median()})
    ),
    "long slices": lambda: np.apply_along_axis(np.sort, 1, LARGE.reshape(3, -1)),
    "a mask": lambda: KEYED.loc[KEYED.value > 0.5, "value"].sum(),
    "a set mask": lambda: KEYED.copy().__setitem__("value", KEYED.value.where(KEYED.key > 9)),
    "parts": lambda: pd.concat([FRAME for _ in range(100)]),
    "not grown": lambda: [pd.concat([FRAME, FRAME]) for _ in range(20)],
    "one query": lambda: INDEXED.execute("select sum(a) from rows").fetchone(),
    "the C engine": read_csv,
    # Who chooses this wants few bytes.
    "LZMA": lambda: lzma.compress(WORDS),
}


@pytest.mark.parametrize("name", SILENT)
def test_the_same_calls_are_silent_where_they_do_what_they_should(name, tmp_path, retried):
    def measure():
        assert found_in(SILENT[name], tmp_path / "silent.diag") is None

    retried(measure)


COPY = ("deepcopy", "/usr/lib/python3.11/copy.py", 128, 128)
LIBRARY = ("helper", "/usr/lib/python3.11/site-packages/library/core.py", 7, 1)


def copying(share=0.5, tasks=0.5, count=40, callers=(MAIN,), on_cpu=True):
    """One task that computes for a part of 10 s, and copies for a share of it."""
    recording = run([Task(0.0, 10 * tasks)], stop=10.0, workers=1, scheduler="synchronous")
    took = 10 * tasks
    rows = [
        ((0.0, took), "work", [*callers, COPY], share * took, share * took),
        ((0.0, took), "work", [MAIN], (1 - share) * took, (1 - share) * took),
    ]
    return with_stacks(recording, rows)


def test_a_slow_call_takes_much_of_the_tasks_and_of_the_computation():
    cases = {
        (): (
            *("medium", "upper_bound", 2.5, "copy only what changes", "copy.deepcopy, called at"),
            {"spent": 2.5, "spent_share": 0.5},
        ),
        (0.9, 0.9): ("high", 8.1),
        (0.29, 0.9): None,
        (0.31, 0.9): "medium",
        # In all of the computation it is little.
        (0.5, 0.28): None,
        # What libraries do with functions of Python is their own.
        (0.9, 0.9, 40, (MAIN, LIBRARY)): None,
    }
    check("slow-call", copying, cases)


def test_cells_of_a_sheet_are_not_read_one_by_one():
    """In a workbook that is only read, each begins at the first row."""
    folder = "/usr/lib/python3.11/site-packages/openpyxl/worksheet"
    cell = ("Worksheet.cell", f"{folder}/worksheet.py", 244, 230)
    get = ("ReadOnlyWorksheet._get_cell", f"{folder}/_read_only.py", 139, 139)
    rows = ("WorkSheetParser.parse", f"{folder}/_reader.py", 153, 150)
    made = run([Task(0.0, 5.0)], stop=5.0, workers=1, scheduler="synchronous")
    for path, is_found in (([MAIN, cell, get, rows], True), ([MAIN, rows], False)):
        found = by_code(with_stacks(made, [((0.0, 5.0), "work", path, 5.0, 5.0)]))
        assert ("slow-call" in found) == is_found
        if is_found:
            assert (
                "Worksheet.cell, called at main (~/code/main.py:5)" in found["slow-call"].evidence
            )
            assert "sheet.iter_rows(values_only=True)" in found["slow-call"].advice


def test_calls_of_tasks_that_still_run_have_no_seconds_yet():
    running = run([Task(0.0, math.nan)], stop=10.0, workers=1, scheduler="synchronous")
    stacks = [((0.0, 9.0), "work", [MAIN, COPY], 9.0, 9.0)]
    assert "slow-call" not in by_code(with_stacks(running, stacks))


def test_code_without_a_path_may_be_named_like_a_module_of_python():
    """Such code is the program's, and the call of a function as well."""
    found = by_code(copying(0.9, 0.9, callers=(MAIN, ("deepcopy", "copy.py", 3, 1))))
    assert "copy.deepcopy" in found["slow-call"].evidence
