"""A run to be shown while it goes on: in pictures of the live page and of the terminal."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PROGRAM", "RUN", "address_of", "running"]

RUN = [sys.executable, "-m", "dask_diag", "run"]
PROGRAM = """
import time
import dask
import numpy as np

def load(block):
    time.sleep(0.05)
    return np.ones(200_000) * block

def clean(values):
    for _ in range(40):
        values = np.sqrt(values * values + 1)
    return values

def fit(values):
    time.sleep(7)
    return values

delayed = dask.delayed
blocks = [delayed(clean)(delayed(load)(block)) for block in range(600)]
blocks[250] = delayed(fit)(blocks[250])
means = [delayed(np.mean)(block) for block in blocks]
delayed(sum)(means).compute(scheduler="threads", num_workers=4)
"""


@contextlib.contextmanager
def running(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Meanwhile the program runs and is recorded."""
    command = [*RUN, *options, "--force", "-o", str(path), "-c", PROGRAM]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def address_of(process: subprocess.Popen[str]) -> str:
    """Where the live page of a run is, which it prints."""
    assert process.stderr is not None
    address = re.search(r"http://\S+", process.stderr.readline())
    assert address is not None
    return address[0]
