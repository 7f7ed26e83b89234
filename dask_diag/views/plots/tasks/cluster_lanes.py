"""What lanes show of workers of a cluster beside tasks: when they were there, and what they moved.

Under the first lane of a worker is a strip: results that arrive from others, results that go to its
disk or come back, and the time in which it paused. A lane is hatched while its worker was not
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool
from bokeh.plotting import figure

from dask_diag.analysis.grouping import rows_by
from dask_diag.columns import FloatArray, IntArray
from dask_diag.formatting import count, size
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity, WorkerEvent
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import formatted
from dask_diag.views.plots.tasks.columns import FULL, LANE
from dask_diag.views.theme.colors import color_of_activity

__all__ = ["draw_workers_in_lanes", "marks_in_lanes"]

_FINEST = 1500
"""Parts of the time: what is closer together than one of them is drawn as one."""
_GAP = 6
"""Between a lane and its strip."""
_ABSENT = "#9a9a9a"


class _Moved(NamedTuple):
    """What happened at workers from one time to another: of each the worker, start, stop, bytes."""

    workers: Mapping[str, IntArray]
    start: FloatArray
    stop: FloatArray
    bytes: FloatArray


_KINDS = {
    Activity.TRANSFER: ("results arrive from other workers", color_of_activity(Activity.TRANSFER)),
    WorkerEvent.DISK_WRITE: ("results go to disk", color_of_activity(Activity.SPILL)),
    WorkerEvent.DISK_READ: ("results come back from disk", color_of_activity(Activity.SPILL)),
    WorkerEvent.PAUSED: ("paused", color_of_activity(Activity.NONCPU)),
}


_NAMES = dict.fromkeys(
    (WorkerEvent.DISK_WRITE, WorkerEvent.DISK_READ), "results go to disk or come back"
)


def marks_in_lanes(recording: Recording) -> list[tuple[str, str]]:
    """The colours and names of what is drawn; empty if there is nothing but tasks."""
    present = [kind for kind in _KINDS if len(_moved(recording, kind).start)]
    # What goes to disk and what comes back have one colour.
    names = {_KINDS[kind][1]: _NAMES.get(kind, _KINDS[kind][0]) for kind in present}
    marks = list(names.items())
    workers = recording.workers.rows(~recording.workers.address.where(""))
    if (workers.joined > recording.start).any() or not np.isnan(workers.left).all():
        marks.append((_ABSENT, "hatched: the worker was not there"))
    return marks


def draw_workers_in_lanes(
    plot: figure, recording: Recording, origin: float, duration: float, lanes: Sequence[str]
) -> None:
    """Draw this into the figure of tasks, which has these lanes."""
    workers = recording.workers.rows(~recording.workers.address.where(""))
    if not len(workers):
        return
    lanes_of: dict[str, list[int]] = {}
    for lane, name in enumerate(lanes):
        lanes_of.setdefault(name.rpartition("/")[0], []).append(lane)
    _draw_absence(plot, list(_absences(workers.to_dicts(), lanes_of, origin, duration)))
    rows = [
        row
        for kind in _KINDS
        for row in _strips(_moved(recording, kind), kind, lanes_of, origin, duration)
    ]
    if rows:
        # The strip of the last lane is below it.
        plot.y_range.start = LANE * len(lanes)
        _draw_strips(plot, rows)


def _absences(
    workers: Sequence[Mapping[str, float]],
    lanes_of: Mapping[str, Sequence[int]],
    origin: float,
    duration: float,
) -> Iterator[tuple[float, float, int]]:
    """Start, stop and lane of the times in which a worker had not joined yet, or had left."""
    for worker in workers:
        joined, left = worker["joined"] - origin, worker["left"] - origin
        for lane in lanes_of.get(str(worker["worker"]), ()):
            if joined > 0:
                yield 0.0, min(joined, duration), lane
            if left < duration:
                yield max(left, 0.0), duration, lane


def _draw_absence(plot: figure, rows: Sequence[tuple[float, float, int]]) -> None:
    if not rows:
        return
    left, right, lane = zip(*rows, strict=True)
    top = LANE * np.array(lane)
    source = ColumnDataSource({"left": left, "right": right, "top": top, "bottom": top + FULL})
    plot.quad(
        source=source,
        fill_color=None,
        line_color=_ABSENT,
        line_width=1,
        hatch_pattern="/",
        hatch_color=_ABSENT,
        hatch_alpha=0.5,
        hatch_scale=8,
        level="underlay",
    )


def _moved(recording: Recording, kind: str) -> _Moved:
    """All events of a kind."""
    if kind == Activity.TRANSFER:
        transfers = recording.transfers
        table = transfers.rows(transfers.activity.where(kind))
        return _Moved(rows_by(table.destination), table.start, table.stop, table.bytes)
    events = recording.worker_events.rows(recording.worker_events.event.where(kind))
    return _Moved(rows_by(events.worker), events.start, events.stop, events.bytes)


def _strips(
    moved: _Moved,
    kind: str,
    lanes_of: Mapping[str, Sequence[int]],
    origin: float,
    duration: float,
) -> Iterator[dict[str, object]]:
    """The rectangles of a kind, in the strips of workers; those that would touch are one."""
    name, color = _KINDS[kind]
    for worker, of_worker in moved.workers.items():
        if worker not in lanes_of:
            continue
        rows = of_worker[np.argsort(moved.start[of_worker], kind="stable")]
        start, stop = moved.start[rows] - origin, np.maximum.accumulate(moved.stop[rows]) - origin
        apart = start[1:] > stop[:-1] + duration / _FINEST
        first = np.concatenate([[0], np.flatnonzero(apart) + 1])
        last = np.append(first[1:], len(rows)) - 1
        sizes = np.add.reduceat(np.nan_to_num(moved.bytes[rows]), first)
        for begin, end, together in zip(first.tolist(), last.tolist(), sizes, strict=True):
            number = end - begin + 1
            yield {
                "left": start[begin],
                "right": stop[end],
                "top": LANE * lanes_of[worker][0] + FULL + _GAP,
                "bottom": LANE * (lanes_of[worker][0] + 1) - _GAP,
                "color": color,
                "worker": shown(worker, 60),
                "what": _text(name, number, float(together)),
            }


def _text(name: str, number: int, together: float) -> str:
    times = f" ({count(number)} times)" if number > 1 else ""
    return f"{name}{times}{f', {size(together)}' if together else ''}"


def _draw_strips(plot: figure, rows: Sequence[Mapping[str, object]]) -> None:
    strips = plot.quad(
        left="left",
        right="right",
        top="top",
        bottom="bottom",
        fill_color="color",
        line_color="color",
        source=ColumnDataSource({name: [row[name] for row in rows] for name in rows[0]}),
    )
    if plot.select(HoverTool):
        plot.add_tools(
            HoverTool(
                renderers=[strips],
                tooltips=[("worker", "@worker"), ("what", "@what"), ("from", "@left{custom}")],
                formatters={"@left": formatted("moment")},
                point_policy="follow_mouse",
                show_arrow=False,
                visible=False,
            )
        )
