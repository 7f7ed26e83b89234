"""Planted programs whose tasks call something for which there is a faster call."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed

from tests.diagnosis.program import PROCESSES, SLEEPING, STARTUP, Program, threads

SYNC = {"scheduler": "synchronous"}
ROWS = 30_000


def trips(number: int) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(number).integers(0, 9, (ROWS, 2)), columns=["x", "y"])


def distance(row: pd.Series) -> float:
    return float(row["x"] ** 2 + row["y"] ** 2)


def farthest(number: int, by_rows: bool) -> float:
    table = trips(number)
    if by_rows:
        return float(table.apply(distance, axis=1).max())
    return float((table.x**2 + table.y**2).max())


def rows_of_a_table(_: None, remedied: bool) -> float:
    """A Python function for each row of a dataframe."""
    return float(sum(dask.compute(*(delayed(farthest)(n, not remedied) for n in range(20)))))


def longest(number: int) -> float:
    wide = pd.DataFrame(np.random.default_rng(number).random((400_000, 6)))
    return round(float(wide.apply(lambda column: column.sort_values().iloc[-9]).max()), 9)


def columns_of_a_table(_: None, remedied: bool) -> float:
    """A function for each of a few columns, which works on all rows."""
    return float(sum(dask.compute(*(delayed(longest)(n) for n in range(10)))))


def collected(number: int, once: bool) -> int:
    parts = (pd.DataFrame({"n": np.arange(2000) + number, "part": n}) for n in range(600))
    if once:
        return int(pd.concat(list(parts))["n"].max())
    table = pd.DataFrame({"n": [0], "part": [0]})
    for part in parts:
        table = pd.concat([table, part])
    return int(table["n"].max())


def a_growing_table(_: None, remedied: bool) -> int:
    """A table to which each part is added by itself."""
    return int(sum(dask.compute(*(delayed(collected)(n, remedied) for n in range(4)))))


@contextmanager
def database() -> Iterator[str]:
    """A table without an index."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "orders.db")
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("create table orders (customer, amount)")
            rows = ((n % 5000, n % 97) for n in range(60_000))
            connection.executemany("insert into orders values (?, ?)", rows)
        yield path


def totals(path: str, first: int, joined: bool) -> int:
    with closing(sqlite3.connect(path)) as connection:
        if joined:
            asked = "select sum(amount) from orders where customer between ? and ?"
            return int(connection.execute(asked, (first, first + 39)).fetchone()[0])
        total = 0
        for customer in range(first, first + 40):
            asked = "select sum(amount) from orders where customer = ?"
            total += connection.execute(asked, (customer,)).fetchone()[0]
        return total


def a_query_for_each_customer(path: Any, remedied: bool) -> int:
    """Each query looks through all rows."""
    return int(sum(dask.compute(*(delayed(totals)(path, n * 40, remedied) for n in range(20)))))


def scored(part: pd.DataFrame) -> pd.DataFrame:
    time.sleep(len(part) / 40_000)
    return part.groupby("tenant").agg({"value": "sum"})


def visits(number: int, is_even: bool) -> pd.DataFrame:
    tenant = np.arange(20_000) % 64
    if not is_even:
        tenant = np.where(np.arange(20_000) % 20, 7, tenant)
    return pd.DataFrame({"tenant": tenant, "value": np.arange(20_000) + number})


def tenants(_: None, remedied: bool) -> int:
    """Most rows have one key, and come to one partition."""
    table = dd.from_map(visits, range(8), is_even=remedied)
    parts = table.shuffle("tenant", npartitions=16).map_partitions(scored)
    return int(parts.value.sum().compute())


PROGRAMS = (
    Program(
        "most rows of one key in processes",
        tenants,
        "straggler",
        true=STARTUP | {"disk-shuffle", "too-few-threads"},
        settings=PROCESSES,
        remaining=STARTUP | {"disk-shuffle", "too-few-threads"},
    ),
    Program(
        "a function for each row in processes",
        rows_of_a_table,
        "slow-call",
        true=STARTUP,
        settings=PROCESSES,
        remaining=STARTUP | {"first-call"},
    ),
    Program(
        "a function for each row in threads",
        rows_of_a_table,
        "gil-bound",
        remaining=frozenset({"gil-bound"}),
    ),
    Program("healthy: a function for each column", columns_of_a_table, settings=threads(2)),
    Program(
        "a table that grows",
        a_growing_table,
        "slow-call",
        # One task at a time leaves a CPU idle.
        true=SLEEPING,
        remaining=SLEEPING,
        settings=SYNC,
    ),
    Program(
        "a query for each customer",
        a_query_for_each_customer,
        "slow-call",
        settings=threads(2),
        remaining=SLEEPING,
        prepare=database,
    ),
)
