"""A histogram of the heaviest pair in each collision, over files of very different sizes."""

import argparse

import dask
import numpy as np

FILES = [400_000, 900_000, 600_000, 800_000, 500_000, 16_000_000]
BINS = np.linspace(0, 200, 101)


@dask.delayed
def masses(file: int, start: int, events: int) -> np.ndarray:
    """In place of a file of collisions: the histogram of its pairs' masses."""
    random = np.random.default_rng([file, start])
    momentum = random.exponential(30, (2, events))
    angle = random.uniform(0, np.pi, events)
    mass = np.sqrt(2 * momentum[0] * momentum[1] * (1 - np.cos(angle)))
    return np.histogram(mass, BINS)[0]


def main(events: int) -> None:
    pieces = [
        masses(file, start, min(events, size - start))
        for file, size in enumerate(FILES)
        for start in range(0, size, events)
    ]
    (histograms,) = dask.compute(pieces, scheduler="threads")
    print(f"{sum(histograms).sum():,} pairs below 200 GeV")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=16_000_000, help="at most, in a task")
    main(parser.parse_args().events)
