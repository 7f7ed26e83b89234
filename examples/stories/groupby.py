"""A mean by name over a table in many small partitions, as a folder of small files gives."""

import argparse

import dask.dataframe as dd
import numpy as np
import pandas as pd

ROWS = 4_000_000


def read(part: int, rows: int) -> pd.DataFrame:
    """In place of a file: some rows of names and values."""
    random = np.random.default_rng(part)
    return pd.DataFrame({"name": random.integers(0, 100, rows), "x": random.random(rows)})


def main(partitions: int) -> None:
    table = dd.from_map(read, range(partitions), rows=ROWS // partitions)
    means = table.groupby("name").x.mean().compute(scheduler="threads")
    print(f"{len(means)} names, mean {means.mean():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    main(parser.parse_args().partitions)
