"""Runs one planted program, in a process of its own: it prints a line of JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any

import dask

from tests.diagnosis.programs import PROGRAMS

INTERVAL = 0.05
"""Seconds between samples of memory: programs are short."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("--remedied", action="store_true")
    parser.add_argument("--record")
    parser.add_argument("--config", default="{}")
    arguments = parser.parse_args()
    program = PROGRAMS[arguments.program]
    settings = program.settings_of(arguments.remedied) | json.loads(arguments.config)
    with contextlib.ExitStack() as stack:
        # Before a cluster starts, which reads them.
        stack.enter_context(dask.config.set(settings))
        prepared: Any = program.prepare()
        if prepared is not None:
            prepared = stack.enter_context(prepared)
        # What dask imports when it is first called is no part of a program.
        dask.compute(dask.delayed(int)(), scheduler="sync")
        if arguments.record:
            from dask_diag import record

            stack.enter_context(record(arguments.record, resource_interval=INTERVAL))
        start = time.perf_counter()
        result = program.body(prepared, arguments.remedied)
        wall = time.perf_counter() - start
    print(json.dumps({"wall": wall, "result": result}))


if __name__ == "__main__":
    main()
