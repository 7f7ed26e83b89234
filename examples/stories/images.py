"""A smoothing filter over a large image, tile by tile, with overlapping borders."""

import argparse

import dask.array as da
import numpy as np


def smooth(tile: np.ndarray) -> np.ndarray:
    """Replace each pixel by the mean of its neighbours, five times."""
    for _ in range(5):
        tile = sum(np.roll(tile, step, axis) for axis in (0, 1) for step in (-1, 1)) / 4
    return tile


def main(tile: int) -> None:
    image = da.random.default_rng(1).random((4_096, 4_096), chunks=(tile, tile))
    smoothed = image.map_overlap(smooth, depth=5, boundary="reflect")
    print(f"deviation: {smoothed.std().compute(scheduler='threads'):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tile", type=int, default=128, help="pixels on a side of a tile")
    main(parser.parse_args().tile)
