"""Monthly means of forty years of daily fields, in chunks of a few days each."""

import argparse

import dask
import dask.array as da
import numpy as np

DAYS, ROWS, COLUMNS = 40 * 360, 45, 90


def read(block_info: dict) -> np.ndarray:
    """In place of a file: a field for each day, warmer in summer."""
    (start, stop), *_ = block_info[None]["array-location"]
    season = np.cos(2 * np.pi * np.arange(start, stop) / 360).astype("f4")
    noise = np.random.default_rng(start).standard_normal((stop - start, ROWS, COLUMNS), "f4")
    return 280 + 10 * season[:, None, None] + noise


def main(days: int) -> None:
    lengths = tuple([days] * (DAYS // days))
    field = da.map_blocks(read, chunks=(lengths, (ROWS,), (COLUMNS,)), dtype="f4")
    means = [
        da.concatenate([field[day : day + 30] for day in range(30 * month, DAYS, 360)]).mean(axis=0)
        for month in range(12)
    ]
    (means,) = dask.compute(means, scheduler="threads")
    print(f"January {means[0].mean():.1f} K, July {means[6].mean():.1f} K")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=6, help="days in a chunk")
    main(parser.parse_args().days)
