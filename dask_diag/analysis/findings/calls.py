"""Rule on calls in tasks for which there is a much faster one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from weakref import WeakKeyDictionary

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    Diagnosis,
    Evidence,
    Gain,
    at_line,
    evidence,
    rule,
    severity_of,
    where_of_samples,
)
from dask_diag.analysis.lines import (
    CallInTasks,
    call_in_tasks,
    share_in_other_packages,
)
from dask_diag.model.codes import GROWS, QUERIES, Root
from dask_diag.model.recording import Recording


class FasterCall(NamedTuple):
    """Calls that are known to be slow, and what to do instead.

    Attributes
    ----------
    functions : str
        Pattern of the functions, as ``pandas/core/frame.py:iterrows``.
    what : str
        Clause on what the call does.
    instead : str
        The advice.
    tells : str
        Pattern of functions in which the call spends a share of its time only where it is slow.
    telling : float
        That share.
    besides : str
        Pattern of functions in which the call spends `BESIDES` only where it does what it should.
    name : str
        How the reader knows the functions, if not by their names.
    by_libraries : bool
        Whether libraries call these functions of the standard library for the program.
    calls_back : bool
        Whether it calls a function of the program, which is not slow for it where other packages
        do the work.
    """

    functions: str
    what: str
    instead: str
    tells: str = ""
    telling: float = 0.02
    besides: str = ""
    name: str = ""
    by_libraries: bool = False
    calls_back: bool = False


GROWING = FasterCall(
    "",
    "copies all rows that are there for each one that is added",
    "collect the parts in a list, and join these once, after the loop",
)
"""Calls in a loop: see `lines_of_io`."""
QUERYING = FasterCall(
    "",
    "runs a query for each of many values",
    "ask for many values in one query, with a join or IN; index the columns that it looks for",
)
ONE_FORMAT = FasterCall(
    r"dateutil/parser/.*",
    "parses one time after the other in Python code",
    "parse each column of times with one format, as pandas.to_datetime(column, "
    "format='%Y-%m-%d') does, not each time by itself in Python code",
    name="dateutil.parser",
)
BY_ROW = FasterCall(
    r"pandas/core/(frame\.py:(apply|applymap|map|iterrows)|series\.py:(apply|map)"
    r"|window/[a-z]+\.py:apply|groupby/(groupby|generic)\.py:(apply|aggregate|transform))"
    r"|numpy/lib/[a-z_]+\.py:(_vectorize_call|apply_along_axis)",
    "runs Python code for each row, group or element",
    "compute with whole columns or arrays: arithmetic and numpy.where for elements, axis= for "
    "the rows of an array, groupby with the names of aggregations, such as agg('max')",
    r"pandas/core/(apply\.py:series_generator|frame\.py:iterrows|algorithms\.py:map_array"
    r"|window/rolling\.py:apply_func|groupby/ops\.py:_chop)"
    r"|numpy/lib/([a-z_]+\.py:_vectorize_call|_?shape_base[a-z_]*\.py:<genexpr>"
    r"|_?index_tricks[a-z_]*\.py:__next__)",
    besides=r"pandas/core/algorithms\.py:take_nd|pandas/core/indexes/base\.py:get_indexer"
    r"|numpy/lib/[a-z_]+\.py:_vectorize_call_with_signature",
    calls_back=True,
)
FASTER: tuple[FasterCall, ...] = (
    GROWING._replace(
        functions=r"pandas/core/indexing\.py:__setitem__",
        tells=r"pandas/core/indexing\.py:_setitem_with_indexer_missing",
        name="loc[...] = of pandas",
    ),
    ONE_FORMAT,
    ONE_FORMAT._replace(functions=r"_strptime\.py:.*", name="datetime.strptime"),
    BY_ROW,
    # A result of several numbers for each row or group may take longer than these.
    BY_ROW._replace(tells=r"pandas/core/series\.py:_init_dict", telling=0.2),
    FasterCall(
        r"pandas/core/(indexing|series|frame)\.py:__[gs]etitem__",
        "takes or sets one element or row at a time",
        "compute with whole columns; or take the values out once, with column.to_numpy() or "
        "itertuples()",
        r"pandas/core/(series|frame)\.py:(_[gs]et_value|_ixs)",
        0.2,
        name="[], loc, iloc or at of pandas",
    ),
    FasterCall(
        # Columns of Arrow have these of their own.
        r"pandas/core/strings/object_array\.py:_str_(contains|endswith|find|fullmatch|is[a-z]+|len"
        r"|lower|lstrip|match|replace|rstrip|slice|startswith|strip|title|upper)",
        "handles each string as a Python object",
        "convert a column of strings once: column.astype('string[pyarrow]')",
    ),
    FasterCall(
        r"pandas/io/parsers/python_parser\.py:.*",
        "parses text in Python code",
        "let read_csv parse with engine='c' or 'pyarrow'; for these sep= is a single character",
        # Columns of fixed width: no other engine reads them.
        besides=r"pandas/io/parsers/python_parser\.py:(__next__|detect_colspecs)",
    ),
    FasterCall(
        r"numpy/lib/[a-z_]+\.py:genfromtxt|csv\.py:__next__",
        "parses text in Python code",
        "parse it with pandas.read_csv",
    ),
    FasterCall(
        r"pandas/io/excel/_openpyxl\.py:.*",
        "reads cell by cell in Python code",
        "read with engine='calamine' (package python-calamine), or convert the files to Parquet",
    ),
    FasterCall(
        r"openpyxl/worksheet/_read_only\.py:_get_cell",
        "reads the sheet from its begin for each cell",
        "go through the rows once: for row in sheet.iter_rows(values_only=True)",
    ),
    FasterCall(
        r"yaml/constructor\.py:get_single_data",
        "parses text in Python code",
        "parse it with yaml.load(text, Loader=yaml.CSafeLoader)",
        r"yaml/(scanner|parser)\.py:.*",
    ),
    FasterCall(
        r"ast\.py:literal_eval",
        "compiles text as Python code",
        "parse it with json.loads; let what writes it write JSON",
    ),
    FasterCall(
        r"gzip\.py:(compress|write)|numpy/lib/[a-z_]+\.py:savez_compressed",
        "compresses",
        "compress less: compresslevel=1 for gzip if it is higher, numpy.savez in place of "
        "savez_compressed, or zstd",
        by_libraries=True,
    ),
    FasterCall(
        r"PIL/PngImagePlugin\.py:_save",
        "compresses",
        "save with compress_level=1 if it is higher, or in another format",
    ),
    FasterCall(
        r"logging/__init__\.py:_log",
        "writes one message at a time",
        "log once for many rows, or filter messages by level",
    ),
    FasterCall(
        r"pandas/core/(frame|series|generic)\.py:(to_string|__repr__)",
        "writes a table as text for people, in Python code",
        "do so only where the text is shown: f-strings in calls of logging are made at each level "
        "(logging.Logger.isEnabledFor, or '%s' and the table as an argument); to_csv for programs",
    ),
    FasterCall(
        r"copy\.py:deepcopy",
        "copies each object in it in Python code",
        "copy only what changes, as {**record} or list(values) do",
    ),
    FasterCall(
        r"statistics\.py:(mean|p?stdev|p?variance|_ss|_sum)",
        "computes exact fractions in Python code",
        "compute with NumPy: numpy.mean, numpy.std(values, ddof=1)",
    ),
    FasterCall(
        r"(re/_compiler|sre_compile)\.py:compile",
        "compiles a pattern",
        "compile each pattern once, outside of the loop",
    ),
)
"""What was tried with each is in ``tests/test_faster_calls.py``."""

BESIDES = 0.1
"""Share of a call in other functions, from which on it is not slow."""
IN_OTHERS = 0.5
"""Share of a call in other packages, from which on what it calls is not slow for being called."""
OFTEN = 0.3
"""Least share of the sampled time of tasks in such calls."""
WORTH_REPORTING = 0.15
"""Least share of the time in computations that they take."""
FEWEST_SAMPLES = 10
"""Least number of samples in them."""


_DATABASE = re.compile(
    r"(?:^|[._])(?:con|connection|conn|cnx|cur|cursor|db|database|duckdb|engine|session|sql\w*)\d*$",
    re.IGNORECASE,
)
"""Names of what runs queries: other things have a method ``execute``, too."""


class SlowCall(NamedTuple):
    """A kind of calls of tasks, and the samples in them."""

    kind: FasterCall
    call: CallInTasks

    def lost(self, analysis: Analysis) -> float:
        """Wall seconds in these calls."""
        return min(analysis.wall_of_tasks(self.call.seconds), analysis.computing)

    def clause(self, analysis: Analysis) -> Evidence:
        """Clause on the call: its seconds, name and place."""
        called_at = f", called at {self.call.place}"
        if not self.call.place:
            # A library calls it: the program's code runs below.
            seconds = analysis.recording.samples.seconds
            called_at = at_line(analysis, seconds * self.call.chosen)
        return evidence(
            "spent {spent:seconds} ({spent_share:share} of their time) in {call}, which {what}",
            spent=self.call.seconds,
            spent_share=min(self.call.seconds / analysis.in_tasks, 1.0),
            call=f"{self.call.name}{called_at}",
            what=self.kind.what,
        )


_found: WeakKeyDictionary[Analysis, SlowCall | None] = WeakKeyDictionary()
"""What was found, while an analysis is in use: two rules ask."""


def slow_call(analysis: Analysis) -> SlowCall | None:
    """The kind of slow calls in which tasks spent most time; None if none is worth it."""
    if not analysis.in_tasks:
        # Those that still run have no seconds yet.
        return None
    if analysis not in _found:
        _found[analysis] = _slow_call(analysis)
    return _found[analysis]


def _slow_call(analysis: Analysis) -> SlowCall | None:
    samples = analysis.recording.samples
    of_tasks = float(samples.seconds[samples.root.eq(Root.TASKS)].sum())
    found = [
        slow
        for slow in _calls(analysis)
        if slow.call.seconds >= OFTEN * of_tasks
        and samples.count[slow.call.chosen].sum() >= FEWEST_SAMPLES
    ]
    return max(found, key=lambda one: one.call.seconds, default=None)


def _calls(analysis: Analysis) -> Iterator[SlowCall]:
    recording = analysis.recording
    for kind in FASTER:
        call = call_in_tasks(recording, kind.functions, kind.by_libraries)
        if call is not None and _is_slow(recording, kind, call):
            yield SlowCall(kind, call._replace(name=kind.name or call.name))
    for line in analysis.lines_of_io:
        receiver, _, function = line.call.rpartition(".")
        if function in GROWS or (function in QUERIES and _DATABASE.search(receiver)):
            kind = GROWING if function in GROWS else QUERYING
            seconds = float(recording.samples.seconds[line.chosen].sum())
            yield SlowCall(kind, CallInTasks(line.call, line.place, line.chosen, seconds))


def _is_slow(recording: Recording, kind: FasterCall, call: CallInTasks) -> bool:
    """Whether a call is slow by what it calls itself."""

    def share(functions: str) -> float:
        inside = call_in_tasks(recording, functions)
        if inside is None:
            return 0.0
        return float(recording.samples.seconds[call.chosen & inside.chosen].sum()) / call.seconds

    tells = not kind.tells or share(kind.tells) >= kind.telling
    if kind.calls_back and share_in_other_packages(recording, call) >= IN_OTHERS:
        return False
    return tells and not (kind.besides and share(kind.besides) >= BESIDES)


# Where threads waited for the GIL meanwhile, that finding has the advice.
@rule("slow-call", needs=("samples",), unless=("gil-bound",))
def slow_calls(analysis: Analysis) -> Diagnosis | None:
    """Tasks mostly ran in a call for which there is a much faster one."""
    found = slow_call(analysis)
    if found is None:
        return None
    lost = found.lost(analysis)
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence("Tasks {spent}", spent=found.clause(analysis)),
        found.kind.instead,
        where_of_samples(analysis, found.call.chosen),
    )
