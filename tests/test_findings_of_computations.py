"""Findings on many computations, on recordings written by hand: the same work again, too little."""

import numpy as np
import pytest

from dask_diag.model.table import stack

from .recordings import (
    MAIN,
    Task,
    by_code,
    check,
    in_rounds,
    run,
    with_columns,
    with_stacks,
    with_tables,
    with_waits,
)

pytestmark = pytest.mark.once

TOKEN = "0123456789abcdef0123456789abcdef"
LOAD = f"('load-{TOKEN}', 0)"


def several(computations, apart=0.0, called=0.0, before=0.0, **columns):
    """Computations one after the other: of each, keys and seconds of the tasks of one worker."""
    parts, start = [], 0.0
    for number, keys in enumerate(computations):
        begins = start + called + before
        ends = np.cumsum([begins, *(seconds for _, seconds in keys)]).tolist()
        pairs = zip(ends, ends[1:], strict=False)
        tasks = [
            Task(*pair, function=key.split("-")[0].strip("('"))
            for pair, (key, _) in zip(pairs, keys, strict=True)
        ]
        one = run(tasks, stop=ends[-1], workers=1)
        name = f"run-{number}"
        parts.append(
            with_tables(
                one,
                computations={n: one.computations[n].tolist() for n in one.computations.columns}
                | {
                    "computation": [name],
                    "called": [start],
                    "start": [start + called],
                    "prepared": [begins],
                    "call_site": [f"main.py:{number % 2}"],
                    **{column: [value] for column, value in columns.items()},
                },
                tasks={n: one.tasks[n].tolist() for n in one.tasks.columns}
                | {"computation": [name] * len(keys), "key": [key for key, _ in keys]},
            )
        )
        start = ends[-1] + apart
    tables = {
        name: stack([getattr(part, name) for part in parts]) for name in ("computations", "tasks")
    }
    columns_of = {
        name: {column: table[column].tolist() for column in table.columns}
        for name, table in tables.items()
    }
    return with_tables(parts[0], **columns_of)


def other(number):
    """A key of work that nothing else has."""
    return f"('own-{number:032x}', 0)"


def shared(share, key=LOAD, number=4):
    """Computations of a second, of which this share is the same work."""
    return several([[(key, share), (other(n), 1 - share)] for n in range(number)])


def test_work_that_an_earlier_computation_did_is_repeated():
    check(
        "repeated-work",
        shared,
        [
            (
                0.5,
                (
                    "high",
                    "upper_bound",
                    1.5,
                    "3 of 4 runs of load repeat earlier ones: 1 different key in 4 computations",
                    "main.py:1 and main.py:0",
                ),
            ),
            # 3% of four seconds, and 9%.
            ((0.04,), None),
            ((0.12,), "low"),
            # All of it: the preparation of its graph, too, would not be needed.
            ((1.0,), 3.0),
            # Keys that dask did not name: the user may give one name to two things.
            ((0.5, "load"), None),
            ((0.5, "('load', 0)"), None),
            ((0.5, "load-0"), None),
            ((0.5, "load-3f2b8c1e-52a4-4d1c-9f43-8a1b2c3d4e5f"), 1.5),
            ((0.5, f"('load-{TOKEN}', 0)", 1), None),
        ],
    )


def test_a_key_that_one_computation_runs_again_is_not_repeated_work():
    again = [(LOAD, 0.5), (LOAD, 0.5)]
    check("repeated-work", several, [(([again],), None), (([again, [(other(0), 1.0)]],), None)])
    different = [[(f"('load-{TOKEN}', {n})", 1.0)] for n in range(4)]
    check("repeated-work", several, [((different,), None)])


def small(number=200, tasks=3, work=0.2, **kwargs):
    """Computations of 2 ms, of which tasks run for this share."""
    idle = 1e-3 * (1 - work)
    keys = [
        [(other(1000 * n + k), 2e-3 * work / tasks) for k in range(tasks)] for n in range(number)
    ]
    return several(keys, called=idle, before=idle, **kwargs)


def test_computations_that_take_longer_than_their_tasks_are_small():
    check(
        "small-computations",
        small,
        [
            (
                {},
                (
                    "high",
                    "upper_bound",
                    0.32,
                    "200 computations of 3 tasks took 2.00 ms each, of which tasks ran for 400 µs",
                ),
            ),
            ({"number": 90}, None),
            ({"tasks": 21}, None),
            ({"work": 0.45}, True),
            ({"work": 0.55}, None),
            # The program does other things most of the time.
            ({"apart": 0.02}, None),
            ({"apart": 0.004}, "medium"),
            ({"cpu_ends": 1e-3}, 0.12),
            ({"scheduler": "distributed"}, 0.32),
        ],
    )
    check("tasks-too-small", small, [({}, None)])


def combining(number=40, file="xarray/structure/concat.py", later=0.0):
    """A second of a library's computations, called where the program opens files; then one more."""
    keys = [[(other(n), 0.02)] for n in range(number)]
    last = [[(other(n), later)] for n in range(10_000, 10_001)] * bool(later)
    sites = ["main.py:5"] * number + ["main.py:9"] * bool(later)
    made = several([*keys, *last], before=0.005)
    made = with_columns(made, "computations", call_site=sites)
    path = [MAIN, ("concat", f"/opt/env/lib/python3.11/site-packages/{file}", 9, 1)]
    return with_stacks(made, [((0.0, 1.0), "between computations", path, 0.2, 0.2)])


def test_files_whose_coordinates_are_compared():
    said = (
        "xarray computed 40 times as it combined files or datasets, to compare their coordinates: "
        "1.00 s at main (~/code/main.py:5)"
    )
    check(
        "small-computations",
        combining,
        [
            ({}, ("high", "upper_bound", 1.0, said, "coords='minimal'")),
            ({"file": "xarray/core/concat.py"}, True),
            ({"file": "somewhere/concat.py"}, None),
            ({"number": 19}, None),
            ({"later": 1.0}, 1.0),
            ({"later": 9.0}, None),
        ],
    )


def shuffled(seconds, size=1e8, limit=8e9, kind="diskshuffle"):
    """Of each of two threads, so long in tasks that write and read parts, and a second in others."""
    tasks = [
        Task(*times, worker=worker, function=function)
        for worker in range(2)
        for *times, function in (
            (0.0, seconds / 2, "shuffle-partition"),
            (seconds / 2, seconds, kind),
            (seconds, seconds + 1.0, "work"),
        )
    ]
    made = with_columns(run(tasks), "tasks", nbytes=[0.0, size / 2, 8.0] * 2)
    return with_columns(made, "computations", memory_limit=[limit])


def test_shuffles_through_files():
    cases = {
        # Of 2 s a half.
        1.0: (
            *("high", "upper_bound", 1.0),
            "shuffled a dataframe of 100 MB through files: 4 tasks took 2.00 s (50% of the time of",
            "'dataframe.shuffle.method': 'tasks'",
        ),
        0.44: True,
        0.42: None,
        # Memory holds it twice only, or that is not known.
        (1.0, 3e9): None,
        (1.0, float("nan")): "shuffled a dataframe through files",
        (1.0, 1e8, float("nan")): "shuffled a dataframe of 100 MB through files",
        # Shuffles in memory, and those of clusters, have other names.
        (1.0, 1e8, 8e9, "shuffle-p2p"): None,
        # A bag is shuffled so in any case.
        (1.0, 1e8, 8e9, "groupby-collect-count"): ("shuffled a bag", "use foldby", 1.0),
        (1.0, 3e9, 8e9, "groupby-collect-count"): "shuffled a bag",
        (1.0, 1e8, 8e9, "groupby-partial"): None,
    }
    check("disk-shuffle", shuffled, cases)


def merged(small=1e4, large=1e6, parts=4, scheduler="distributed", others=0):
    """Two tables of so many bytes in each part, on two workers one task at a time, a second each.

    Others are tasks of another shuffle.
    """
    tasks, keys, sizes = [], [], []

    def add(function, name, part, size, needs=()):
        number = len(tasks)
        tasks.append(Task(number, number + 1.0, 1.0, function, number % 2, tuple(needs)))
        keys.append(f"('{name}', {part})")
        sizes.append(size)
        return number

    inputs = [
        (table, part, add("load", f"load-{table}", part, size))
        for table, size in (("a", small), ("b", large))
        for part in range(parts)
    ]
    if scheduler == "distributed":
        sent = [
            add("hash-join-transfer", f"hash-join-transfer-{table}", part, 28, [needed])
            for table, part, needed in inputs
        ]
        barrier = add("shuffle-barrier", "shuffle-barrier-c", 0, 28, sent)
        for part in range(parts):
            add("hashjoinp2p", "hashjoinp2p-d", part, large, [barrier])
    else:
        written = [
            add("shuffle-partition", "shuffle-partition-c", part, 16, [needed])
            for _, part, needed in inputs
        ]
        read = [
            (part, add("diskshuffle", f"diskshuffle-{table}", part, size, written))
            for table, size in (("a", small), ("b", large))
            for part in range(parts)
        ]
        for part in range(parts):
            add(
                "blockwisemerge", "blockwisemerge-d", part, large, [n for p, n in read if p == part]
            )
    for part in range(others):
        add("shuffle-transfer", "shuffle-transfer-e", part, 28)
    made = run(tasks, scheduler=scheduler)
    return with_columns(made, "tasks", key=keys, nbytes=sizes)


def test_a_small_table_is_merged_without_a_shuffle():
    """Of 21 tasks 13 shuffle on a cluster, of 28 in threads 16."""
    one_part = ".repartition(npartitions=1)"
    cases = {
        (): ("shuffled both tables of a merge, 40.0 kB and 4.00 MB, through files", one_part, 15.5),
        # Half of what sends parts is of another shuffle: half of 28 s of overhead.
        (1e4, 1e6, 4, "distributed", 8): (
            "the merge's share of scheduling overhead took 14.0 s",
            13.5,
        ),
        (0.49e5,): one_part,
        # Not small, or alone: then both are shuffled for a reason, between workers.
        (0.51e5,): None,
        (1e4, 1e6, 1): None,
        (float("nan"),): None,
        (2.6e7, 1e9): None,
        (2.4e7, 1e9): one_part,
        (1e4, 1e6, 4, "threads"): ("40.0 kB and 4.00 MB", one_part, "upper_bound", 16.0),
        (0.6e5, 1e6, 4, "threads"): "'dataframe.shuffle.method': 'tasks'",
    }
    check("disk-shuffle", merged, cases)


def overlapping(border=1.5, work=1.0, step="overlap"):
    """Two chunks of 1 MB, which overlap by so many MB in three parts, one after the other."""
    tasks, sizes, start = [], [], 0.0
    for _ in range(2):
        first = len(tasks)
        tasks += [Task(start + n, start + n + 0.5, 0.5, "getitem") for n in range(4)]
        tasks.append(
            Task(
                *(start + 4, start + 4 + work, work, "smooth-overlap"),
                depends_on=tuple(range(first, first + 4)),
            )
        )
        sizes += [1e6, *[border / 3 * 1e6] * 3, 8.0]
        start += 4 + work
    made = run(tasks, workers=1)
    made = with_columns(made, "tasks", nbytes=sizes, group=[0, 0, 0, 0, 1] * 2)
    steps = {"group": [0, 1, 1], "function": ["getitem", "smooth", step], "line": [-1] * 3}
    return with_tables(made, steps=steps)


def test_borders_of_chunks_are_computed_again():
    """Of 2.5 MB 1.5 MB are borders, and three fifths of the seconds."""
    said = "60% of 5.00 MB that 2 tasks of map_overlap were given. They took 8.00 s"
    cases = {
        (1.5, 4.0): ("high", "upper_bound", 4.8, said, "depth={0: 0, 1: 8, 2: 8}"),
        (0.9, 4.0): None,
        (1.1, 4.0): True,
        # Less than 15% of all seconds.
        (1.5, 0.5): None,
        (1.5, 4.0, "sum"): None,
        (float("nan"), 4.0): None,
    }
    check("repeated-work", overlapping, cases)


def test_who_shuffles_through_files_cannot_release_the_gil():
    made = with_waits(in_rounds(16, 2, 0.5), "gil-wait")
    assert "gil-bound" in by_code(made)
    for parts, is_found in ((9, False), (7, True)):
        functions = ["shuffle-partition"] * parts + ["work"] * (16 - parts)
        assert ("gil-bound" in by_code(with_columns(made, "tasks", function=functions))) == is_found


def test_a_finding_names_the_steps_that_fused_tasks_mostly_run():
    made = with_columns(with_waits(in_rounds(16, 2, 0.5), "gil-wait"), "tasks", group=[0] * 16)
    made = with_columns(made, "tasks", function=["flatten"] * 16)
    cases = {
        (0.6, 0.3, 0.1): "parse (in flatten)",
        (0.4, 0.3, 0.3): "parse and clean (in flatten)",
        (0.1, 0.3, 0.6): "flatten",
        (float("nan"), float("nan"), float("nan")): "flatten",
    }
    for took, name in cases.items():
        steps = {
            "group": [0] * 3,
            "function": ["parse", "clean", "flatten"],
            "line": [-1] * 3,
            "how": ["name"] * 3,
            "seconds": took,
            "cpu_seconds": took,
            "timed": [int(took[0] == took[0])] * 3,
        }
        found = by_code(with_tables(made, steps=steps))["gil-bound"]
        assert f"Mostly in {name}" in found.evidence
        assert found.where.functions == (name,)


def computed_inside(number, share, cpu, others=0.0, again=0):
    """Ten tasks of a second on two of two CPUs, of which this share is computations inside."""
    recording = in_rounds(10, 2, cpu)
    tasks = list(range(10))
    metrics = {
        "task": [*tasks, *tasks, 0],
        "activity": ["computations in tasks"] * 21,
        "unit": ["seconds"] * 10 + ["computations"] * 10 + ["repeats of read-csv"],
        "value": [share] * 10 + [number / 10] * 10 + [again],
        "cpu": [float("nan")] * 21,
    }
    recording = with_columns(recording, "computations", cpu_other_processes=[5.0 * others])
    return with_tables(recording, metrics=metrics)


def test_computations_inside_of_tasks():
    cases = {
        (20, 0.8, 0.4): (
            *("high", "upper_bound", 4.0),
            "10 tasks of work ran 20 computations inside, for 8.00 s (80% of the time of all",
            {"number": 20, "spent": 8.0, "cpu": 4.0, "cpus": 2},
            "compute all in one call",
        ),
        (9, 0.8, 0.4): None,
        (20, 0.4, 0.4): None,
        # The CPUs do useful work, or others had them.
        (20, 0.8, 0.8): None,
        (20, 0.8, 0.4, 0.5): True,
        (20, 0.8, 0.4, 1.4): None,
        # Which is no excuse for the same work.
        (20, 0.8, 0.8, 0.0, 10): (
            "ran 20 computations inside, for 8.00 s (80% of the time of all tasks); 10 of these had "
            "the inputs of an earlier one (read-csv)",
            "compute it once",
        ),
        (20, 0.8, 0.8, 0.0, 9): None,
    }
    check("nested-computations", computed_inside, cases)
    # What does not wait for other threads computes itself.
    for activity, is_found in (("thread-wait", True), ("io-wait", False)):
        made = with_waits(computed_inside(20, 0.8, 0.4), activity)
        assert ("nested-computations" in by_code(made)) == is_found


def test_what_repeats_in_processes_does_not_start_them():
    """Each of two computations takes a second, in which its process starts for 0.6 s."""
    made = several([[(LOAD, 0.4)]] * 2, before=0.6, scheduler="processes", prepared=0.0)
    prepared = made.computations.called
    made = with_columns(made, "computations", prepared=prepared)
    made = with_columns(made, "tasks", submitted=prepared, pid=["1", "2"])
    started = {"computation": ["run-0", "run-1"], "pid": ["1", "2"], "joined": prepared + 0.6}
    saved = by_code(with_tables(made, workers=started))["repeated-work"].potential_saving
    assert saved == pytest.approx(0.4, abs=0.01)
    assert by_code(made)["repeated-work"].potential_saving == pytest.approx(1.0, abs=0.01)


def test_hardly_any_repeated_work_is_no_finding():
    assert "repeated-work" not in by_code(several([[(LOAD, 0.01)]] * 2, before=0.5))
