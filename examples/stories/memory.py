"""Moments of a hundred batches of data, read by a function with a cache that never forgets."""

import argparse
import functools

import dask
import numpy as np


def read(batch: int, part: int) -> np.ndarray:
    """In place of a file."""
    return np.random.default_rng([batch, part]).random((125, 1_000))


@dask.delayed
def moments(read, batch: int, part: int) -> np.ndarray:
    values = read(batch, part)
    return np.array([(values**power).mean() for power in range(1, 11)])


def main(cached: int | None) -> None:
    reader = functools.lru_cache(maxsize=cached)(read)
    results = []
    for batch in range(100):
        parts = [moments(reader, batch, part) for part in range(6)]
        results += dask.compute(*parts, scheduler="threads", num_workers=2)
    print("moments:", *np.mean(results, axis=0).round(3))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cached", type=int, help="how many results to keep; all by default")
    main(parser.parse_args().cached)
