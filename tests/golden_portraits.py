"""What the package says of recordings that are kept, so that a change of its structure shows.

``python -m tests.golden_portraits`` writes it again: look at the difference before you commit it.
``python -m tests.golden_portraits record`` makes the recordings anew, which a change of the file
format needs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import socket
import sys
import tempfile
import threading
import time
import warnings
from html.parser import HTMLParser
from pathlib import Path

import dask
import numpy as np

import dask_diag
from dask_diag import context_meter, load, record, save
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.headline import headline
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.table import Table
from dask_diag.storage.write import Writer

from .pages import document, plain

FOLDER = Path(__file__).parent / "golden"
STORIES = Path(__file__).parent.parent / "docs" / "stories"
OF_STORIES = ("collisions", "download", "groupby", "memory_after", "word_count")
DIGITS = 9
"""Digits that are compared: sums may be added in another order."""


def sources():
    """The recordings by name: some of the documentation, and those of this folder."""
    kept = {path.stem: path for path in sorted(FOLDER.glob("*.diag"))}
    return {**{name: STORIES / f"{name}.diag" for name in OF_STORIES}, **kept}


def portrait(path):
    """What is said of a recording: texts and tables as they are, large outputs as digests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recording = load(path)
        analysis = Analysis(recording)
        said = {
            "state": recording.state,
            "notices": list(recording.notices),
            "headline": headline(analysis),
            "summary": str(dask_diag.summary(recording, verbose=True)).splitlines(),
            "findings": [finding.to_dict() for finding in dask_diag.findings(recording)],
            **{name: rows(table) for name, table in tables(recording, analysis).items()},
            "digests": dict(digests(recording)),
            "page": page(recording),
        }
    return json.loads(json.dumps(rounded(said)))


def tables(recording, analysis):
    """The answers that are tables, by name."""
    by = ("function", "worker", "span", "computation")
    made = {f"activities by {name}": dask_diag.activities(recording, by=name) for name in by}
    made["activities"] = dask_diag.activities(recording)
    made["phases"], made["wall time"] = analysis.phases, analysis.wall_time
    made["waits"] = dask_diag.waits(recording)
    made["functions"] = analysis.functions
    made["memory"] = dask_diag.task_memory(recording)
    made["allocations"] = dask_diag.peak_allocations(recording)
    # Damaged ones may not be simulated, and a rate needs events.
    for name in ("what_if", "throughput"):
        with contextlib.suppress(dask_diag.DiagnosticError):
            made[name] = getattr(dask_diag, name)(recording)
    return made


def rows(table):
    """The rows of a table, the first hundred, or of a list of results their digest."""
    dicts = table.to_dicts() if hasattr(table, "to_dicts") else [vars(table)]
    return dicts[:100]


def digests(recording):
    """Of each export, and each table of it, a digest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dask_diag.export(recording, folder / "tables", format="csv")
        for path in sorted((folder / "tables").iterdir()):
            yield f"csv {path.name}", digest(path)
        for ending in ("perfetto.json", "speedscope.json", "collapsed"):
            path = folder / f"run.{ending}"
            with contextlib.suppress(dask_diag.DiagnosticError):
                dask_diag.export(recording, path)
                yield ending, digest(path)
        dask_diag.save(recording, folder / "saved.diag")
        yield "loads as it was saved", repr(load(folder / "saved.diag")) == repr(recording)


def digest(path):
    text = path.read_bytes().replace(dask_diag.__version__.encode(), b"VERSION")
    return hashlib.sha256(text).hexdigest()[:16]


class Text(HTMLParser):
    """The text of a page, without scripts and styles."""

    def __init__(self):
        super().__init__()
        self.parts, self.hidden = [], 0

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data):
        if not self.hidden and data.strip():
            self.parts.append(" ".join(data.split()))


def page(recording):
    """The text of the report, and a digest of the data of its figures."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "report.html"
        dask_diag.report(recording, path)
        text = Text()
        text.feed(path.read_text(errors="surrogatepass"))
        return {"text": text.parts, "figures": sorted(figures(path))}


def figures(path):
    """A digest of the data of each source of columns, and of each script's arguments."""
    for model in document(path):
        if model["name"] == "ColumnDataSource":
            data = plain(model["attributes"].get("data", {}))
            yield f"columns {sorted(data)} {of_data(data)}"
        elif model["name"] == "CustomJS":
            args = plain(model["attributes"]["args"])
            for name in sorted(args):
                if isinstance(args[name], dict) and "layout" in args[name]:
                    yield f"packed {name} {of_data(args[name])}"


def of_data(data):
    text = json.dumps(data, sort_keys=True, default=lambda value: value.hex())
    # Ids of bokeh's models are numbers of the process.
    return hashlib.sha256(re.sub(r'"id": "p?\d+"', "", text).encode()).hexdigest()[:16]


def rounded(value):
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return repr(float(f"{value:.{DIGITS}g}"))
    return value.item() if isinstance(value, np.generic) else value


LOCK = threading.Lock()


def load_part(n):
    with context_meter.meter("reading"):
        time.sleep(0.02)
    context_meter.digest_metric("read", 1_000_000 * n, "bytes")
    return bytes(100_000)


def clean(part):
    total = 0
    for i in range(60_000):
        total += i * i
    with LOCK:
        time.sleep(0.005)
    return part[: total % 50_000]


def fails(part):
    raise ValueError(f"{len(part)} bytes are too few")


def graph(parts):
    """Some tasks that read, some that compute, and one that joins them."""
    return count_([clean_(load_(n)) for n in range(parts)])


load_, clean_, fails_ = dask.delayed(load_part), dask.delayed(clean), dask.delayed(fails)
count_ = dask.delayed(lambda parts: sum(map(len, parts)), name="count")


def record_all():
    """Make the recordings of this folder."""
    FOLDER.mkdir(exist_ok=True)
    for scheduler in ("threads", "processes", "synchronous"):
        with recorded(scheduler, trace_memory=scheduler == "synchronous"):
            for parts in (6, 8):
                graph(parts).compute(scheduler=scheduler, num_workers=2)
    with recorded("failed"), contextlib.suppress(ValueError):
        dask.compute(
            graph(4), fails_(load_(1)), clean_(load_(9)), scheduler="threads", num_workers=2
        )
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
        recorded("cluster"),
    ):
        graph(8).compute()
        with contextlib.suppress(ValueError):
            client.submit(fails, b"few").result()
    # One whose writer was killed, and one that has changed since.
    threads = load(FOLDER / "threads.diag")
    with Writer(FOLDER / "truncated.diag", overwrite=True) as writer:
        writer.append(threads)
        writer.abandon()
    with (FOLDER / "threads.diag").open("rb") as file:
        content = file.read()
    (FOLDER / "damaged.diag").write_bytes(content[:-40] + bytes(40))


@contextlib.contextmanager
def recorded(name, **options):
    """Record a block into this folder, without what is of this machine only."""
    path = FOLDER / f"{name}.diag"
    with record(path, overwrite=True, **options):
        yield
    save(without_machine(load(path)), path, overwrite=True)


def without_machine(recording):
    """The same, with other names of folders and of the host in all texts."""
    names = {sys.prefix: "python", sys.base_prefix: "python", str(FOLDER.parent.parent): "program"}
    names[socket.gethostname()] = "host"

    def renamed(text):
        if not isinstance(text, str):
            return text
        for name, other in names.items():
            text = text.replace(name, other)
        return text

    tables = {}
    for field in dataclasses.fields(recording):
        table = getattr(recording, field.name)
        if not isinstance(table, Table) or not len(table):
            continue
        columns = {name: table[name] for name in table.columns}
        for name, column in columns.items():
            if isinstance(column, Categorical):
                columns[name] = Categorical(column.codes, list(map(renamed, column.values)))
            elif isinstance(column, PrefixStrings):
                columns[name] = PrefixStrings.of(map(renamed, column.tolist()))
        tables[field.name] = type(table)(columns)
    return dataclasses.replace(recording, **tables)


def write_all():
    for name, path in sources().items():
        text = json.dumps(portrait(path), indent=1, ensure_ascii=False, sort_keys=True)
        (FOLDER / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    # As worker processes import it.
    from tests import golden_portraits

    if sys.argv[1:] == ["record"]:
        golden_portraits.record_all()
    golden_portraits.write_all()
