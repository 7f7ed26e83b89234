"""Recordings such as might have been measured, of computations that overlap, for any property."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dask_diag import Recording
from dask_diag.analysis.lines import OWN_CALLS
from dask_diag.model.codes import Activity, Root

from .recordings import CORE, MAIN, filled_table, recording_of_stacks

NAN = float("nan")
_SLEW = 1e-6
"""Seconds by which two readings of clocks that belong together may differ."""
_CLOCKS = (1e-9, 1e-4, 10e-3)
"""Steps of a clock of CPU: most are fine, those of some systems and containers are not."""
_WAITS = (Activity.GIL_WAIT, Activity.IO_WAIT, Activity.SLEEP)
_IMPORT = ("_find_and_load", "<frozen importlib._bootstrap>", 1176, 1165)
_PATHS = ([MAIN, CORE, _IMPORT], [MAIN, CORE], [MAIN, (OWN_CALLS, "", 0, 0)], None)


@st.composite
def recordings(draw, most_computations=4, schedulers=("threads", "processes", "distributed")):
    """Of computations that overlap or not, with waits, metered seconds, transfers and stacks."""
    return _Made(
        draw(st.randoms(use_true_random=False)),
        draw(st.integers(1, most_computations)),
        schedulers,
    ).recording()


class _Made:
    """Rows of tables, as they are made."""

    def __init__(self, random, computations, schedulers):
        self.random = random
        self.clock = random.choice(_CLOCKS)
        self.schedulers = schedulers
        self.computations, self.tasks, self.dependencies = [], [], []
        self.waits, self.metrics, self.transfers, self.workers = [], [], [], []
        for number in range(computations):
            self._computation(f"c{number}")

    def _computation(self, name):
        random, scheduler = self.random, self.random.choice(self.schedulers)
        on_cluster = scheduler == "distributed"
        called = random.choice([0.0, random.uniform(0, 2)])
        start = called if on_cluster else called + random.choice([0.0, 1e-4, 0.1]) * random.random()
        prepared = (
            start if on_cluster else start + random.choice([0.0, 0.01, 3.0]) * random.random()
        )
        workers = random.randint(1, 3)
        last = prepared
        waited = random.random() < 0.5
        for lane in range(workers):
            now = prepared
            for _ in range(random.randint(0, 4)):
                now = self._task(name, scheduler, lane, now, waited)
            last = max(last, now)
        stop = last + random.choice([0.0, 1e-5, 0.5])
        unfinished = random.random() < 0.2
        if unfinished:
            began = random.uniform(last, stop)
            self._row(name, scheduler, 0, began, NAN, NAN, NAN, outcome="unfinished")
        if on_cluster:
            self.workers += [
                {"computation": "s", "worker": f"w{n}", "threads": 1, "joined": 0.0, "left": NAN}
                for n in range(workers)
                if f"w{n}" not in {worker["worker"] for worker in self.workers}
            ]
        self.computations.append(
            {
                "computation": name,
                "called": called,
                "start": start,
                "prepared": prepared,
                "stop": stop,
                "workers": workers,
                "scheduler": scheduler,
                "cluster": "s" if on_cluster else "",
                "cpus": 2,
                "cpu_process": (stop - start) * random.uniform(0, 2),
                "cpu_scheduler": (stop - start) * random.random(),
                "cpu_hooks": random.choice([0.0, NAN, (stop - start) * random.random()]),
                "cpu_ends": random.choice([NAN, (stop - start) * random.random()]),
                "cpu_own_threads": random.choice([NAN, (stop - start) * random.random()]),
                "own_seconds": random.choice([NAN, 2 * (prepared - called) * random.random()]),
                "error": "ValueError" if unfinished else "",
            }
        )

    def _task(self, name, scheduler, lane, now, waited):
        """Add a task that starts from `now` on; returns when its worker is free."""
        random = self.random
        start = now + random.choice([0.0, 1e-5, 0.1]) * random.random()
        rebuilt = random.choice([0.0, 0.01]) if scheduler == "processes" else 0.0
        began = start + rebuilt
        took = random.choice([0.0, 1e-6, 1e-3, 0.5]) * random.random()
        stop = began + took
        # A clock in steps, which may run a little faster than that of the time.
        cpu = random.choice([0.0, 1.0, random.random()]) * took
        cpu = round(cpu / self.clock + random.uniform(-0.5, 0.5)) * self.clock if took else cpu
        cpu = max(0.0, cpu + random.choice([0.0, _SLEW * random.random()]))
        if random.random() < 0.05:
            cpu = NAN
        outcome = random.choice(["ok"] * 6 + ["failed"])
        pickled = random.choice([0.0, 0.02]) if scheduler == "processes" else 0.0
        row = self._row(name, scheduler, lane, began, stop, cpu, stop + pickled, outcome=outcome)
        if scheduler == "processes":
            self.transfers += [
                (row, "worker", Activity.DESERIALIZE, start, began),
                (row, "worker", Activity.SERIALIZE, stop, stop + pickled),
            ]
        if waited and outcome == "ok" and cpu == cpu:
            self._waited(row, took, cpu)
        for _ in range(random.choice([0, 0, 0, 1, 2])):
            value = took * random.random() * random.choice([0.5, 1.0, 3.0])
            of_cpu = random.choice([NAN, min(value, cpu) if cpu == cpu else 0.0])
            self.metrics.append((row, random.choice("xy"), "seconds", value, of_cpu))
        return stop + pickled

    def _waited(self, row, took, cpu):
        """What it waited for: read a little before and after the task's own times are."""
        random, noncpu = self.random, max(took - cpu, 0.0)
        read = noncpu * random.random() + _SLEW * random.random()
        self.waits.append((row, Activity.CPU_WAIT, read, random.choice([0, 1])))
        if random.random() < 0.5:
            seconds = noncpu * random.uniform(0, 1.5)
            self.waits.append((row, random.choice(_WAITS), seconds, 1))

    def _row(self, name, scheduler, lane, start, stop, cpu, collected, outcome):
        worker = {"threads": f"thread-{lane}", "processes": f"process-{lane}"}
        self.tasks.append(
            {
                "key": f"k-{len(self.tasks)}",
                "function": self.random.choice("fg"),
                "start": start,
                "stop": stop,
                "thread_cpu": cpu,
                "thread_noncpu": stop - start - cpu,
                "submitted": start,
                "collected": collected,
                "worker": worker.get(scheduler, f"w{lane}/0"),
                "pid": str(lane) if scheduler == "processes" else "0",
                "computation": name,
                "outcome": outcome,
            }
        )
        row, earlier = len(self.tasks) - 1, self.random.randrange(len(self.tasks))
        if earlier < row and self.tasks[earlier]["computation"] == name:
            if self.tasks[earlier]["collected"] <= start:
                self.dependencies.append((row, earlier))
        return row

    def recording(self):
        random = self.random
        stop = max(row["stop"] for row in self.computations)
        cycles = np.arange(0.0, stop, max(stop / 4, 0.01)).tolist()
        stacks = recording_of_stacks(
            [
                ((start, stop), random.choice([Root.GRAPH, Root.BEFORE]), path, seconds, seconds)
                for start, stop in zip(cycles[:-1], cycles[1:], strict=True)
                for path in random.choices(_PATHS, k=2)
                for seconds in [random.uniform(0, 2) * (stop - start)]
            ]
        )
        return Recording(
            start=0.0,
            stop=stop + random.choice([0.0, 0.3]),
            epoch=0.0,
            computations=_table("computations", self.computations),
            tasks=_table("tasks", self.tasks),
            dependencies=_table("dependencies", _named(self.dependencies, "task depends_on")),
            workers=_table("workers", self.workers),
            waits=_table("waits", _named(self.waits, "task activity seconds samples")),
            metrics=_table("metrics", _named(self.metrics, "task activity unit value cpu")),
            transfers=_table(
                "transfers", _named(self.transfers, "task side activity start stop", bytes=1.0)
            ),
            frames=stacks.frames,
            call_tree=stacks.call_tree,
            samples=stacks.samples,
        )


def _named(rows, names, **others):
    return [{**dict(zip(names.split(), row, strict=True)), **others} for row in rows]


def _table(name, rows):
    columns = {column: [row[column] for row in rows] for column in rows[0]} if rows else {}
    return filled_table(name, columns)
