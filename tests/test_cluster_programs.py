"""Two programs, each in a process of its own, that record what they run on one cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

pytest.importorskip("distributed")


from dask_diag import Profiler, combine, load
from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.cluster.log import ClusterLog

from .clusters import assert_adds_up, cluster

MICROSECONDS = 5e-6
"""Times of a cluster are whole microseconds."""

OTHER = """
import json, sys, time
from distributed import Client
from dask_diag import Profiler, save

with Client(sys.argv[1]) as client, Profiler() as prof:
    print("recording", flush=True)
    sys.stdin.readline()
    client.submit(time.sleep, 0.6, key="of-the-other").result()
recording = prof.recording
save(recording, sys.argv[2])
times = lambda table: list(zip(table.start.tolist(), table.stop.tolist()))
print(json.dumps({
    "keys": recording.tasks.key.tolist(),
    "tasks": times(recording.tasks),
    "others": times(recording.other_tasks),
    "notices": recording.notices,
}))
"""


@pytest.mark.leaves_files
def test_each_program_has_its_own_tasks_and_the_times_of_the_others(monkeypatch, tmp_path):
    replies = []
    receive = ClusterLog.receive

    def note(log, reply):
        replies.append(repr(reply))
        receive(log, reply)

    monkeypatch.setattr(ClusterLog, "receive", note)
    with cluster(1, 2, protocol="tcp") as client:
        plugins = client.cluster.scheduler.plugins
        with Profiler() as prof:
            command = [
                sys.executable,
                "-c",
                OTHER,
                client.cluster.scheduler_address,
                tmp_path / "of_other.diag",
            ]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            with subprocess.Popen(command, **pipes) as other:
                assert other.stdout.readline() == "recording\n"
                futures = client.map(time.sleep, [0.05 + n / 1e6 for n in range(24)], key="solo")
                output, _ = other.communicate("go\n", timeout=60)
                client.gather(futures)
            assert other.returncode == 0
            # The last session takes the plugins with it, and this is still one.
            assert "dask_diag" in plugins
            client.submit(time.sleep, 0.01, key="solo-later").result()
        assert "dask_diag" not in plugins
    other_program, recording = json.loads(output), prof.recording
    assert other_program["keys"] == ["of-the-other"]
    assert len(recording.tasks) == 25
    assert all(key.startswith("solo") for key in recording.tasks.key.tolist())
    ((start, stop),) = other_program["tasks"]
    assert stop - start >= 0.6
    assert recording.other_tasks.start.tolist() == pytest.approx([start], abs=MICROSECONDS)
    assert recording.other_tasks.stop.tolist() == pytest.approx([stop], abs=MICROSECONDS)
    tasks = recording.tasks
    own_tasks = list(zip(tasks.submitted.tolist(), tasks.collected.tolist(), strict=True))
    for start, stop in other_program["others"]:
        assert any(
            sent <= start and stop <= known_to_be_done for sent, known_to_be_done in own_tasks
        )
    # Two threads: so many run on as the other program's block ends, and no more at once.
    took = [stop - start for start, stop in other_program["others"]]
    assert 0 < len(took) <= sum(seconds >= 0.05 for seconds in took) + 2
    starts, stops = zip(*other_program["others"], strict=True)
    assert sum(took) <= 2 * (max(stops) - min(starts))
    assert other_program["notices"] == []
    assert recording.notices == ()
    assert any("solo" in reply for reply in replies)
    assert not any("of-the-other" in reply for reply in replies)
    shared = recording.computations.stop[0] - recording.other_tasks.start[0]
    assert 0.1 < seconds_by_activity(recording)["other"] <= shared + 0.01
    assert_adds_up(recording)
    # The task of the other program is also one of the tasks of others.
    both = combine([recording, load(tmp_path / "of_other.diag")])
    assert len(both.tasks) == 26
    assert len(both.other_tasks) == 1
    (notice,) = both.notices
    assert notice.startswith("several programs were recorded on one cluster at the same time")
    assert_adds_up(both)
