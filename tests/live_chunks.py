"""Chunks of a recording that grows, made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dask_diag.live.model import LiveModel
from dask_diag.storage.chunks import Chunk
from dask_diag.storage.follow import FollowState, Update

from .recordings import NOTHING, filled_table

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J-1"


class Model(LiveModel):
    """A model that is given updates by hand, at a time of its own."""

    now = 130.0

    def __init__(self, name="run.diag"):
        super().__init__(name)

    def at(self, now):
        self.now = now
        return self


def chunk_of(recording):
    values = {"start": recording.start, "stop": recording.stop, "epoch": recording.epoch}
    values["notices"] = recording.notices
    return Chunk(values, {n: t for n, t in recording.tables().items() if len(t)})


def update(*recordings, provisional=None, fresh=False, state=FollowState.GROWING, quiet=0.0):
    shown = None if provisional is None else chunk_of(provisional)
    return Update(fresh, [chunk_of(r) for r in recordings], shown, state, quiet=quiet)


def progress_of(**columns):
    rows = {name: [value] for name, value in columns.items()}
    return filled_table("progress", {"computation": ["c"], "phase": ["tasks"], **rows})


def running(**columns):
    return replace(NOTHING, progress=progress_of(**columns))


def tasks(function="inc", count=10, seconds=2.0, start=100.0, computation="c"):
    starts = start + np.arange(count)
    columns = {"function": [function] * count, "start": starts, "stop": starts + seconds}
    return filled_table("tasks", {**columns, "computation": [computation] * count})


def provisional(finished, total=50):
    rows = {"key": [HOSTILE], "function": [HOSTILE], "start": [1.0], "worker": ["thread-0"]}
    return replace(
        running(total=total, finished=finished, since=0.5),
        tasks=filled_table("tasks", rows),
        planned=filled_table(
            "planned", {"computation": ["c"], "function": ["inc"], "tasks": [total]}
        ),
    )


def chunk(count, stop, function="inc"):
    resources = {"time": [stop - 0.5], "cpu": [150.0], "memory": [2e8]}
    return replace(
        NOTHING,
        stop=stop,
        tasks=tasks(function, count, seconds=0.9, start=1.0),
        resources=filled_table("resources", resources),
    )
