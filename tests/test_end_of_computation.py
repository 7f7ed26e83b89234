"""A recording may be asked for while a computation ends: no half of that is retained."""

from __future__ import annotations

import threading

import dask.threaded
import pytest

from dask_diag import Profiler, SamplingProfiler, combine
from dask_diag.capture import session
from dask_diag.capture.log import Dependencies


def fail(first, started, _release):
    started.wait(30)
    raise ValueError(first)


def wait(started, release):
    started.set()
    release.wait(30)


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (session, "_failure_of"),
        (session, "rows_of"),
        (session, "names_of_plain_keys"),
        (Dependencies, "close"),
        (session, "_release"),
    ],
)
def test_a_recording_made_in_the_middle_of_an_end_spoils_none(owner, step, monkeypatch):
    started, release = threading.Event(), threading.Event()
    graph = {
        "plain": (int,),
        "broken": (fail, "plain", started, release),
        "slow": (wait, started, release),
        "all": (list, ["broken", "slow"]),
    }
    recordings, faults = [], []

    def ask():
        try:
            recordings.append(combine([prof.recording, sprof.recording]))
        except Exception as error:
            faults.append(error)

    def ask_elsewhere():
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(30)

    original = getattr(owner, step)

    def with_a_reader(*args):
        if running:
            running.clear()
            ask_elsewhere()
            result = original(*args)
            ask_elsewhere()
            return result
        return original(*args)

    running = [True]
    with Profiler() as prof, SamplingProfiler() as sprof:
        if step == "names_of_plain_keys":
            # Names are also made for those who ask before the end.
            prof.recording
        monkeypatch.setattr(owner, step, with_a_reader)
        with pytest.raises(ValueError, match="0"):
            dask.threaded.get(graph, "all", num_workers=2)
        release.set()
    assert faults == []
    assert len(recordings) == 2
    final = combine([sprof.recording, prof.recording])
    outcomes = dict(zip(final.tasks.key.tolist(), final.tasks.outcome.tolist(), strict=True))
    assert outcomes == {"plain": "ok", "broken": "failed", "slow": "unfinished"}
    functions = dict(zip(final.tasks.key.tolist(), final.tasks.function.tolist(), strict=True))
    assert functions == {"plain": "int", "broken": "fail", "slow": "wait"}
