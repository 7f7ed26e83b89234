"""What a profiler is in one line, as the last line of a notebook's cell shows it."""

from __future__ import annotations

from time import perf_counter

from dask_diag.capture.session import Session
from dask_diag.formatting import counted, seconds

__all__ = ["short_text"]


def short_text(
    owner: object, session: Session, *, is_active: bool = False, series: int | None = None
) -> str:
    """The class, what was recorded, and for how long; it never raises, and no table is built.

    Parameters
    ----------
    owner : object
        The profiler.
    session : Session
        What it has captured. Tasks of a cluster are not among it, and are not counted.
    is_active : bool, optional
        Whether its time goes on.
    series : int, optional
        Of a sampler of memory: how many it has.
    """
    name = type(owner).__name__
    try:
        facts = [counted(series, "series", "series")] if series is not None else _computed(session)
        if session.start is None:
            facts.append("not started")
        else:
            stop = perf_counter() if is_active or session.stop is None else session.stop
            facts.append(seconds(stop - session.start))
    except Exception:
        # A computation ends, and releases what it has, while it is read.
        facts = ["recording"]
    return f"<{name}: {', '.join(facts)}>"


def _computed(session: Session) -> list[str]:
    computations = tuple(session.computations)
    if not computations:
        return []
    tasks = sum(computation.tasks_done()[0] for computation in computations)
    return [f"{counted(tasks, 'task')} in {counted(len(computations), 'computation')}"]
